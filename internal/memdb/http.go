package memdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Do answers one call of the SDK's client.
func (db *DB) Do(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	target := r.Header.Get("X-Amz-Target")
	service, operation, _ := strings.Cut(target, ".")
	if !strings.HasPrefix(service, "DynamoDB_") {
		return nil, fmt.Errorf("only DynamoDB is there in memory, and this call is for %q at %s", target, r.URL.Host)
	}
	var in request
	var a answer
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&in)
	if err != nil {
		err = invalid("not supported by the DynamoDB in memory: %v", err)
	} else {
		a, err = db.answer(operation, in)
	}
	if err != nil {
		return failure(r, err), nil
	}
	return response(r, http.StatusOK, encode(a)), nil
}

// encode writes JSON. Encoding these values cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func response(r *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{
			"Content-Type": {"application/x-amz-json-1.0"},
			"X-Amz-Crc32":  {strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)},
		},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
}

func failure(r *http.Request, err error) *http.Response {
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{code: "InternalServerError", message: err.Error()}
	}
	body := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + f.code, "message": f.message}
	if f.item != nil {
		body["Item"] = f.item
	}
	if f.reasons != nil {
		body["CancellationReasons"] = f.reasons
	}
	return response(r, http.StatusBadRequest, encode(body))
}

func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return invalid("not supported by the DynamoDB in memory: %v", err)
	}
	return nil
}

// Throttled is the answer to a call that a table refuses for now.
func Throttled(r *http.Request) *http.Response {
	return failure(r, &fault{code: "ProvisionedThroughputExceededException", message: "slow down"})
}
