package console

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"acklast/internal/redrive"
)

// maxLooks is how many answers about the DLQ are kept.
const maxLooks = 20

// look is an answer about the DLQ that a person asked for. It is kept, so that loading its page again does
// not receive again.
type look struct {
	ID     string
	At     time.Time
	Filter redrive.Filter
	Resp   redrive.Response
}

// looks are the newest looks, and the messages that were looked at.
type looks struct {
	mu       sync.Mutex
	n        int
	list     []look
	messages []look
}

func newLooks() *looks { return &looks{} }

func (l *looks) add(at time.Time, f redrive.Filter, resp redrive.Response) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	id := fmt.Sprint(l.n)
	l.list = newest(append(l.list, look{id, at, f, resp}))
	return id
}

func (l *looks) get(id string) (look, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return find(l.list, id)
}

// see keeps an answer about one message.
func (l *looks) see(id string, at time.Time, resp redrive.Response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = slices.DeleteFunc(l.messages, func(k look) bool { return k.ID == id })
	l.messages = newest(append(l.messages, look{ID: id, At: at, Resp: resp}))
}

func (l *looks) seen(id string) (look, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return find(l.messages, id)
}

func find(list []look, id string) (look, bool) {
	i := slices.IndexFunc(list, func(k look) bool { return k.ID == id })
	if i < 0 {
		return look{}, false
	}
	return list[i], true
}

func newest(list []look) []look { return list[max(0, len(list)-maxLooks):] }
