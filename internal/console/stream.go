package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

// streamLife is how long a stream lasts; the browser then opens the next one, which needs a session again.
const streamLife = 10 * time.Minute

// stream sends a part of a page whenever it changes, until the browser leaves, the content is final or the server
// ends. Content that is final is followed by the event "end".
func (s *Server) stream(w http.ResponseWriter, r *http.Request, every time.Duration, content func(context.Context) (name string, p page, final bool)) error {
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	defer cancel()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	var sent []byte
	for {
		name, p, final := content(ctx)
		body, err := render(name, s.fill(r, p))
		if err != nil {
			return err
		}
		if !bytes.Equal(body, sent) {
			if err := event(w, "content", body); err != nil {
				return nil // the browser has left
			}
			sent = body
		}
		if final {
			_ = event(w, "end", nil)
		}
		if err := out.Flush(); err != nil || final {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.ends:
			return nil
		case <-time.After(every):
		}
	}
}

// event writes one event of the stream. Its data must not have an empty line, so each line is a line of data.
func event(w http.ResponseWriter, name string, data []byte) error {
	if _, err := fmt.Fprintf(w, "event: %s\n", name); err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		if _, err := fmt.Fprintf(w, "data: %s\n", bytes.TrimRight(line, "\n")); err != nil {
			return err
		}
	}
	if len(data) == 0 {
		if _, err := fmt.Fprint(w, "data:\n"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, "\n")
	return err
}
