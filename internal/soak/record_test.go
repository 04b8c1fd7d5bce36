package soak

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
)

// markName is the sender's attribute that names a message.
const markName = "soak-mark"

// recorder writes the history. Its methods may be called concurrently.
type recorder struct {
	clock atomic.Int64
	// count is how many deliveries were answered.
	count       atomic.Int64
	ledgerTable string

	mu sync.Mutex
	// sent has by mark what was sent, so that an equal sight of a message needs no memory.
	sent map[string]Content
	// receipts has by receipt the messages that the worker got and has not answered yet.
	receipts map[string]Delete
	// onDLQ has by receipt the marks of the messages that the redrive function received.
	onDLQ map[string]string
	// ahead is the most by which a worker's time was ahead of the time at which its write arrived, in milliseconds.
	ahead int64
	History
}

func (r *recorder) now() Moment { return Moment(r.clock.Add(1)) }

// value is a message attribute, or an attribute of an item, as AWS's JSON has it.
type value struct {
	DataType    string
	StringValue string
	BinaryValue string
	S, N        string
	L           []struct{ M map[string]value }
}

func contentOf(body, group string, attributes map[string]value) (c Content, mark string) {
	c = Content{Body: body, Group: group, Attributes: map[string]string{}}
	for name, a := range attributes {
		if name != job.MemoryAttribute {
			c.Attributes[name] = a.DataType + "/" + a.StringValue + a.BinaryValue
		}
	}
	return c, attributes[markName].StringValue
}

// seen returns the content of a sight, which is the one that was sent if they are equal. The caller holds mu.
func (r *recorder) seen(mark string, c Content) Content {
	if s, ok := r.sent[mark]; ok && s.Body == c.Body && s.Group == c.Group && maps.Equal(s.Attributes, c.Attributes) {
		return s
	}
	return c
}

// tap records what the function behind the proxy did to AWS. redrives says that it is the redrive function.
func (r *recorder) tap(redrives bool) faults.Tap {
	return func(q *http.Request, body []byte) func(int, []byte) {
		began, at := r.now(), time.Now().UnixMilli()
		target := q.Header.Get("X-Amz-Target")
		operation := target[strings.LastIndexByte(target, '.')+1:]
		request := q.Header.Get("Amz-Sdk-Invocation-Id")
		scheduling := strings.HasPrefix(q.URL.Path, "/schedules/")
		return func(status int, answer []byte) {
			ended := r.now()
			r.mu.Lock()
			defer r.mu.Unlock()
			if !redrives {
				r.saw(operation, body, answer, ended)
			}
			if status != http.StatusOK {
				return
			}
			switch {
			case scheduling && q.Method == http.MethodPost:
				r.schedule(body, began, ended)
			case scheduling && q.Method == http.MethodGet: // the worker looks whether an earlier call has created it
				r.schedule(answer, began, ended)
			case operation == "ReceiveMessage" && redrives:
				var out struct {
					Messages []struct {
						ReceiptHandle     string
						MessageAttributes map[string]value
					}
				}
				must(json.Unmarshal(answer, &out))
				for _, m := range out.Messages {
					r.onDLQ[m.ReceiptHandle] = m.MessageAttributes[markName].StringValue
				}
			case operation == "SendMessageBatch":
				r.moved(body, answer, began, ended, redrives)
			case operation == "DeleteMessageBatch":
				var in struct {
					Entries []struct{ ReceiptHandle string }
				}
				must(json.Unmarshal(body, &in))
				for _, e := range in.Entries {
					if mark, ok := r.onDLQ[e.ReceiptHandle]; ok {
						r.Removed = append(r.Removed, mark)
					}
					if d, ok := r.receipts[e.ReceiptHandle]; ok {
						d.Began = began
						r.Deletes = append(r.Deletes, d)
					}
				}
			case operation == "UpdateItem":
				var in update
				must(json.Unmarshal(body, &in))
				r.written(in, request, began, ended, at)
			case operation == "TransactWriteItems":
				var in struct{ TransactItems []struct{ Update update } }
				must(json.Unmarshal(body, &in))
				for _, item := range in.TransactItems {
					r.written(item.Update, request, began, ended, at)
				}
			}
		}
	}
}

func (r *recorder) schedule(body []byte, began, ended Moment) {
	var in struct{ Target struct{ Input string } }
	must(json.Unmarshal(body, &in))
	// The mark is text within JSON within JSON, so it is searched for: it has no character that is escaped.
	if at := strings.Index(in.Target.Input, "mark-"); at >= 0 {
		mark := in.Target.Input[at:]
		mark = mark[:strings.IndexFunc(mark, func(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') })]
		r.Schedules = append(r.Schedules, Schedule{Mark: mark, Began: began, Ended: ended})
	}
}

func (r *recorder) moved(body, answer []byte, began, ended Moment, redrives bool) {
	var in struct {
		QueueURL string `json:"QueueUrl"`
		Entries  []struct {
			ID                string `json:"Id"`
			MessageBody       string
			MessageGroupID    string `json:"MessageGroupId"`
			MessageAttributes map[string]value
		}
	}
	var out struct {
		Successful []struct {
			ID        string `json:"Id"`
			MessageID string `json:"MessageId"`
		}
	}
	must(json.Unmarshal(body, &in))
	must(json.Unmarshal(answer, &out))
	for _, ok := range out.Successful {
		for _, e := range in.Entries {
			if e.ID == ok.ID {
				c, mark := contentOf(e.MessageBody, e.MessageGroupID, e.MessageAttributes)
				r.Moves = append(r.Moves, Move{Mark: mark, Queue: path.Base(in.QueueURL), MessageID: ok.MessageID, Content: r.seen(mark, c), Began: began, Ended: ended, Redriven: redrives})
			}
		}
	}
}

type update struct {
	TableName                 string
	Key                       map[string]value
	ExpressionAttributeValues map[string]value
	UpdateExpression          string
}

func (r *recorder) written(in update, request string, began, ended Moment, at int64) {
	v := in.ExpressionAttributeValues
	if in.TableName != r.ledgerTable || v[":status"].S == "" && v[":version"].N == "" {
		return // another table, or a strike, which is no write of an entry
	}
	r.ahead = max(r.ahead, int64(number(v[":updated_at"].N, 0))-at)
	w := Write{Key: in.Key["key"].S, Began: began, Ended: ended, At: at, Request: request, Status: v[":status"].S, Attempts: -1}
	w.Final = ledger.Status(w.Status).Final()
	w.Version = number(v[":version"].N, 0)
	if w.Version > 0 {
		w.Attempts = number(v[":attempts"].N, -1)
	}
	if v[":lease_until"].N != "" {
		w.Claims = v[":owner"].S
	}
	if evidence := v[":evidence"].L; w.Final && len(evidence) > 0 {
		w.Completes = evidence[len(evidence)-1].M["token"].S
	}
	r.Writes = append(r.Writes, w)
}

// saw records the entries that an answer shows as final. The caller holds mu.
func (r *recorder) saw(operation string, body, answer []byte, ended Moment) {
	type target struct {
		TableName string
		Key       map[string]value
	}
	see := func(of target, item map[string]value) {
		key := of.Key["key"].S
		if _, known := r.Seen[key]; of.TableName == r.ledgerTable && !known && ledger.Status(item["status"].S).Final() {
			r.Seen[key] = ended
		}
	}
	switch operation {
	case "GetItem", "UpdateItem": // a refused update answers with the item
		var in target
		var out struct{ Item map[string]value }
		must(json.Unmarshal(body, &in))
		if json.Unmarshal(answer, &out) == nil {
			see(in, out.Item)
		}
	case "TransactWriteItems":
		var in struct{ TransactItems []struct{ Update target } }
		var out struct {
			CancellationReasons []struct{ Item map[string]value }
		}
		must(json.Unmarshal(body, &in))
		if json.Unmarshal(answer, &out) != nil {
			return
		}
		for i, reason := range out.CancellationReasons {
			see(in.TransactItems[i].Update, reason.Item)
		}
	}
}

func number(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return otherwise
}

// got records what the worker is about to get.
func (r *recorder) got(inv local.Invocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range inv.Records {
		mark := ""
		if a, ok := m.MessageAttributes[markName]; ok && a.StringValue != nil {
			mark = *a.StringValue
		}
		r.receipts[m.ReceiptHandle] = Delete{Receipt: m.ReceiptHandle, Mark: mark, MessageID: m.MessageId}
	}
}

// answered records an answer of the worker. kills says that it will not reach Lambda.
func (r *recorder) answered(inv local.Invocation, kills bool) {
	ids := make([]string, len(inv.Records))
	for i, m := range inv.Records {
		ids[i] = m.MessageId
	}
	confirmed, err := local.Confirmed(ids, inv.Response)
	must(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.now()
	for _, m := range inv.Records {
		attributes := map[string]value{}
		for name, a := range m.MessageAttributes {
			v := value{DataType: a.DataType, BinaryValue: base64.StdEncoding.EncodeToString(a.BinaryValue)}
			if a.StringValue != nil {
				v.StringValue = *a.StringValue
			}
			attributes[name] = v
		}
		c, mark := contentOf(m.Body, m.Attributes["MessageGroupId"], attributes)
		r.Deliveries = append(r.Deliveries, Delivery{
			Mark: mark, MessageID: m.MessageId, Receipt: m.ReceiptHandle, Content: r.seen(mark, c),
			Answered: at, Acknowledged: !kills && slices.Contains(confirmed, m.MessageId),
		})
		if !kills {
			delete(r.receipts, m.ReceiptHandle)
		}
	}
	r.count.Add(int64(len(inv.Records)))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
