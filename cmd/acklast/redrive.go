package main

import "github.com/spf13/cobra"

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.all, "all", false, "everything on the DLQ")
	f.StringSliceVar(&s.classes, "class", nil, "failure classes, such as transient")
	f.StringSliceVar(&s.kinds, "kind", nil, "kinds of job")
	f.StringSliceVar(&s.keys, "job", nil, "keys of jobs")
	f.StringSliceVar(&s.subjects, "subject", nil, "subjects, such as reservation ids")
	f.StringSliceVar(&s.messages, "message", nil, "message ids on the DLQ")
	f.StringVar(&s.errorText, "error", "", "a part of the error's text")
	f.StringToStringVar(&s.attributes, "attribute", nil, "the sender's attributes, such as tenant=blue")
	f.StringToStringVar(&s.payload, "payload", nil, "fields of the payload, such as planId=p-7")
	f.StringSliceVar(&s.fingerprints, "fingerprint", nil, "errors as a look groups them")
	f.StringVar(&s.older, "older-than", "", "isolated longer ago than that, such as 30m or 7d")
	f.StringVar(&s.younger, "younger-than", "", "isolated less long ago than that")
}

func newRedrive(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Bring isolated jobs back: plan, approve, run, stop, revoke",
		Long: `Bring isolated jobs back to the recovery lane. A plan freezes what is selected; a run moves it, a canary first,
at a limited rate, and stops itself when jobs fail again. Exit code 0: done, and all ended well; 1: failed;
2: refused; 3: halted; 4: done, but some jobs failed again, are still retried, or cannot be told; 5: interrupted.
See docs/runbook.md.`,
		Example: `  acklast redrive plan --class transient --older-than 5m --reason 'the provider is back'
  acklast redrive run p-20261201-100000-1a2b3c4d
  acklast redrive stop --reason 'the provider answers 500 again'`,
		Args: cobra.NoArgs, // otherwise a typo would print the help and succeed
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRedrivePlan(a), newRedriveMend(a), newRedriveResend(a), newRedriveApprove(a), newRedriveRun(a), newRedriveStatus(a),
		newRedriveStop(a), newRedriveResume(a),
		newRedriveRevoke(a))
	return cmd
}
