// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Annotations of commands.
const (
	// RecordAnnotation on a NodeClaim says to which command it belongs, as JSON (see [Record]).
	RecordAnnotation = "slipway.sh/disruption"
	// MovingAnnotation on a replacement lists the pods (namespace/name, comma separated) it was bought for.
	MovingAnnotation = "slipway.sh/moving-pods"
	// ReplacedForAnnotation on a replacement is why its predecessor was replaced: the drift, else the reason.
	ReplacedForAnnotation = "slipway.sh/replaced-for"
)

// Record is what a command leaves on each claim that is to go, so that any process can carry it on.
type Record struct {
	ID     string                  `json:"id"`
	Reason karpv1.DisruptionReason `json:"reason"`
	// Nodes are the claims that go together, Replacements the claims bought instead; both may be one name or many.
	Nodes        []string  `json:"nodes"`
	Replacements []string  `json:"replacements,omitempty"`
	Since        time.Time `json:"since"`
	// Saving is what the command saves, in US dollars an hour.
	Saving float64 `json:"saving,omitempty"`
}

// Decision is Karpenter's name for what the command does.
func (r *Record) Decision() string {
	if len(r.Replacements) > 0 {
		return "replace"
	}
	return "delete"
}

// String is the record as an annotation.
func (r *Record) String() string {
	raw, err := json.Marshal(r)
	if err != nil { // strings, numbers and times always marshal
		return ""
	}
	return string(raw)
}

// ParseRecord reads an annotation, nil if there is none. What cannot be read is a record without nodes: a command to take back.
func ParseRecord(value string) *Record {
	if value == "" {
		return nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(value), r); err != nil {
		return &Record{ID: "unreadable"}
	}
	return r
}

// replacementName follows from the command, so that a replacement is never written twice.
func replacementName(pool, id string, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", id, i))
	return pool + "-" + hex.EncodeToString(sum[:5])
}

func splitNames(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
