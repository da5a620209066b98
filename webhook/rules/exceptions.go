// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// Exception takes one object out of one rule, with a reason and until a day.
type Exception struct {
	Rule   string
	Reason string
	// Until is the first instant at which it no longer holds; zero if no date is given.
	Until time.Time
}

// ParseExceptions reads the value of slipway.sh/except: entries "RULE=reason;until=YYYY-MM-DD", separated by commas. The
// date is the last day on which the exception holds, in UTC. Entries that cannot be read are errors; the others hold.
func ParseExceptions(value string) (out []Exception, errs []error) {
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		rule, rest, _ := strings.Cut(entry, "=")
		if rule = strings.TrimSpace(rule); !isID(rule) {
			errs = append(errs, fmt.Errorf("%q does not begin with a rule's id such as R005", entry))
			continue
		}
		e := Exception{Rule: rule}
		reason, until, dated := strings.Cut(rest, ";")
		e.Reason = strings.TrimSpace(reason)
		if dated {
			day, ok := strings.CutPrefix(strings.TrimSpace(until), "until=")
			t, err := time.Parse(time.DateOnly, day)
			if !ok || err != nil {
				errs = append(errs, fmt.Errorf("%q does not end with ;until=YYYY-MM-DD", entry))
				continue
			}
			e.Until = t.AddDate(0, 0, 1)
		}
		out = append(out, e)
	}
	return out, errs
}

// isID reports whether the text is a letter of a family and three digits. By hand: this is asked for every finding of every review.
func isID(text string) bool {
	digit := func(b byte) bool { return '0' <= b && b <= '9' }
	return len(text) == 4 && strings.IndexByte("RDBSNCKG", text[0]) >= 0 && digit(text[1]) && digit(text[2]) && digit(text[3])
}

// Excepted reports whether the subject, or what it makes, is excepted from the rule now.
func Excepted(s *Subject, f *Facts, rule string) bool {
	if rule == "G002" {
		return false // an exception to the rule about exceptions would be one without bounds
	}
	values := []string{s.Meta.Annotations[v1alpha1.ExceptAnnotation]}
	if s.Template != nil && s.Kind != Pod {
		values = append(values, s.Template.Annotations[v1alpha1.ExceptAnnotation])
	}
	for _, v := range values {
		list, _ := ParseExceptions(v)
		for _, e := range list {
			if e.Rule == rule && e.holds(f) {
				return true
			}
		}
	}
	return false
}

func (e Exception) holds(f *Facts) bool {
	x := f.Policy.Exceptions
	switch {
	case e.Until.IsZero() || !f.Now.Before(e.Until):
		return false
	case e.Reason == "" && (x.RequireReason == nil || *x.RequireReason):
		return false
	case x.MaxLifetime != nil && e.Until.Sub(f.Now) > x.MaxLifetime.Duration+24*time.Hour:
		return false
	}
	return true
}
