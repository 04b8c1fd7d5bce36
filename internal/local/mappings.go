package local

import (
	"encoding/json"
	"net/http"

	"acklast/internal/job"
)

// mappingsPath is the path of event source mappings in Lambda's API.
const mappingsPath = "/2015-03-31/event-source-mappings"

// mapping is an event source mapping as Lambda's API shows it.
type mapping struct {
	UUID           string
	EventSourceArn string
	FunctionArn    string
	State          string
	BatchSize      int
	// FunctionResponseTypes and ScalingConfig are what the pollers do.
	FunctionResponseTypes []string
	ScalingConfig         scaling
}

// scaling is a mapping's cap.
type scaling struct{ MaximumConcurrency int }

// mappings serves the part of Lambda's API that controls the pollers: it lists, enables and disables event
// source mappings. The engine does not know our pollers, so it cannot answer. Thus a lane is paused here as it
// is on AWS. A mapping's UUID is the name of its lane.
func (e *Environment) mappings(mux *http.ServeMux) {
	list := func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{
			"EventSourceMappings": []mapping{e.mapping(job.Source), e.mapping(job.Recovery)},
		})
	}
	mux.HandleFunc("GET "+mappingsPath, list) // some clients send the slash, others do not
	mux.HandleFunc("GET "+mappingsPath+"/{$}", list)
	mux.HandleFunc("PUT "+mappingsPath+"/{uuid}", func(w http.ResponseWriter, r *http.Request) {
		lane := job.Queue(r.PathValue("uuid"))
		var change struct{ Enabled *bool }
		switch err := json.NewDecoder(r.Body).Decode(&change); {
		case e.pollers[lane] == nil:
			refuse(w, http.StatusNotFound, "ResourceNotFoundException", "there is no event source mapping "+string(lane))
			return
		case err != nil || change.Enabled == nil:
			refuse(w, http.StatusBadRequest, "InvalidParameterValueException", "only Enabled can be changed here")
			return
		}
		if *change.Enabled {
			e.Resume(lane)
		} else {
			e.Pause(lane)
		}
		reply(w, http.StatusAccepted, e.mapping(lane))
	})
}

func (e *Environment) mapping(lane job.Queue) mapping {
	arn, state := e.arns.Source, "Enabled"
	if lane == job.Recovery {
		arn = e.arns.Recovery
	}
	if e.pollers[lane].isPaused() {
		state = "Disabled"
	}
	return mapping{
		UUID: string(lane), EventSourceArn: arn, State: state, BatchSize: e.pollers[lane].batch,
		FunctionArn:           "arn:aws:lambda:" + Region + ":000000000000:function:" + e.names.WorkerFunction,
		FunctionResponseTypes: []string{"ReportBatchItemFailures"}, ScalingConfig: scaling{cap(e.pollers[lane].slots)},
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Amzn-ErrorType", code)
	reply(w, status, map[string]string{"Type": "User", "Message": message})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // if the client has hung up, nobody reads the answer
}
