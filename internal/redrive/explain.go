package redrive

import (
	"context"

	"acklast/internal/job"
)

// Explanation is what a kind's own records say about a subject.
type Explanation struct {
	Kind string `json:"kind"`
	// Facts are empty when the kind has no record of the subject.
	Facts []job.Fact `json:"facts"`
	// Error says why the kind could not be asked.
	Error string `json:"error,omitempty"`
}

// explain asks the kind of a job, or every kind about a subject, what its own records say. It changes
// nothing. A kind that cannot answer does not keep the others from it.
func (s *Service) explain(ctx context.Context, req Request) (Response, error) {
	names, subject := s.kinds.Names(), req.Subject
	switch {
	case (req.Job == "") == (req.Subject == ""):
		return Response{}, refuse("explain needs the key of a job (job) or a subject (subject), one of them")
	case len(req.Job) > job.MaxKey || len(req.Subject) > job.MaxKey:
		return Response{}, refuse("the key or the subject has more than %d bytes", job.MaxKey)
	case req.Job != "":
		kind, ok := job.KindOf(req.Job)
		if subject, _ = job.SubjectOf(req.Job); !ok || subject == "" {
			return Response{}, refuse("%q is no key of a job: a key is kind/subject/rest", job.SafeText(req.Job))
		}
		names = []string{kind}
	}
	resp := Response{Explanations: []Explanation{}}
	for _, name := range names {
		kind, err := s.start(ctx, name)
		var facts []job.Fact
		if err == nil && kind.Explain != nil {
			facts, err = kind.Explain(ctx, subject)
		}
		switch {
		case err != nil:
			resp.Explanations = append(resp.Explanations, Explanation{Kind: name, Facts: []job.Fact{}, Error: job.SafeText(err.Error())})
		case len(facts) > 0:
			resp.Explanations = append(resp.Explanations, Explanation{Kind: name, Facts: facts})
		}
	}
	return resp, nil
}
