package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"acklast/internal/retry"
)

const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second
	// outputGrace is how long a dead process's output may stay open, because a child of the process can keep it
	// open.
	outputGrace = 200 * time.Millisecond
	// lastLines is how many bytes of a process's output are quoted in an error about it.
	lastLines = 2 << 10
)

// process keeps one worker process running: it starts it, notices its exit and starts it again.
type process struct {
	number int
	binary string
	env    []string
	api    *runtimeAPI
	logs   io.Writer
	log    *slog.Logger
	// earlyExit receives the exit error of a process that never asked for work. It is dropped if the channel is
	// full.
	earlyExit chan error

	mu      sync.Mutex
	pid     int      // of the running process; 0 between two lives
	session *session // of the running process
}

// run supervises until ctx ends, which kills the process.
func (p *process) run(ctx context.Context) {
	// The kernel kills a child when the thread that started it ends, so that thread must live as long
	// as the child does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop := context.AfterFunc(ctx, func() { p.signal(nil, killGroup) })
	defer stop()

	backoff := firstBackoff
	for ctx.Err() == nil {
		if asked := p.live(ctx); asked {
			backoff = firstBackoff
		}
		_ = retry.Sleep(ctx, backoff)
		backoff = min(2*backoff, lastBackoff)
	}
}

// live runs the process once, until its exit. It reports whether the process ever asked for work.
func (p *process) live(ctx context.Context) (asked bool) {
	var s *session
	s = p.api.open(p.number, func() { p.signal(s, killGroup) })
	out := &lineWriter{to: p.logs}
	cmd := exec.Command(p.binary)
	cmd.Dir = filepath.Dir(p.binary)
	cmd.Env = append(slices.Clone(p.env), "AWS_LAMBDA_RUNTIME_API="+s.address())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = processAttributes()
	cmd.WaitDelay = outputGrace

	exit := p.start(ctx, cmd, s)
	if exit == nil {
		_ = cmd.Wait() // the process's state says more
		exit = errors.New(cmd.ProcessState.String())
		p.mu.Lock()
		p.pid, p.session = 0, nil
		p.mu.Unlock()
		killGroup(cmd.Process.Pid) // also end the processes that it started
		out.flush()
	}
	asked = s.end(exit)
	if ctx.Err() != nil {
		return asked
	}
	p.log.Info("worker process exited", "process", p.number, "exit", exit)
	if !asked {
		select {
		case p.earlyExit <- fmt.Errorf("%s exited before it asked for work: %w%s", p.binary, exit, out.quote()):
		default:
		}
	}
	return asked
}

// start starts the process unless ctx has ended. It holds the lock, so that signal sees the process either not
// started or fully started.
func (p *process) start(ctx context.Context, cmd *exec.Cmd, s *session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.pid, p.session = cmd.Process.Pid, s
	s.started(p.pid)
	return nil
}

// signal signals the process and everything it started, if it runs. With a life given, it signals only if the
// process is still in that life.
func (p *process) signal(life *session, send func(pid int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 && (life == nil || life == p.session) {
		send(p.pid)
	}
}

// end kills the process and waits until its exit has been dealt with.
func (p *process) end() {
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s != nil {
		s.kill()
		<-s.done
	}
}

func (p *process) running() (pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// lineWriter passes on whole lines, so that those of several processes do not mix.
type lineWriter struct {
	to   io.Writer
	mu   sync.Mutex
	line []byte
	last []byte // the end of what was written, for an error about the process
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = append(w.last, b...)
	w.last = w.last[max(0, len(w.last)-lastLines):]
	w.line = append(w.line, b...)
	if end := bytes.LastIndexByte(w.line, '\n') + 1; end > 0 {
		_, _ = w.to.Write(w.line[:end]) // a lost log line must not stop the process
		w.line = append([]byte(nil), w.line[end:]...)
	}
	return len(b), nil
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		_, _ = w.to.Write(append(w.line, '\n'))
		w.line = nil
	}
}

func (w *lineWriter) quote() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := bytes.TrimSpace(w.last); len(text) > 0 {
		return "\nits last output was:\n" + string(text)
	}
	return ""
}

// syncWriter lets several processes share one writer.
type syncWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *syncWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}
