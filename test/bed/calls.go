// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-sh/slipway/test/cluster"
)

// policy has the API server note each request of Slipway's service accounts once, when it arrives.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts:` + Namespace + `"]
- level: None
`

// Calls is what the API server has noted of the requests of Slipway's processes.
type Calls struct{ folder string }

// Call is a kind of request: by which service account, with which verb and of what, such as "nodeclaims/status".
type Call struct{ Account, Verb, Resource string }

// RecordCalls sets the options of a cluster that is to note the requests. Call Close when the cluster is gone.
func RecordCalls(o *cluster.Options) (*Calls, error) {
	folder, err := os.MkdirTemp("", "slipway-calls-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the audit log: %w", err)
	}
	c := &Calls{folder: folder}
	if err := os.WriteFile(filepath.Join(folder, "policy.yaml"), []byte(policy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	o.APIServerArgs = append(o.APIServerArgs, "--audit-policy-file="+filepath.Join(folder, "policy.yaml"), "--audit-log-path="+c.log())
	return c, nil
}

func (c *Calls) log() string { return filepath.Join(c.folder, "audit.log") }

// Close removes the log.
func (c *Calls) Close() error { return os.RemoveAll(c.folder) }

// Between counts the requests that arrived from one instant to another.
func (c *Calls) Between(from, to time.Time) (map[Call]int, error) {
	f, err := os.Open(c.log())
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	out := map[Call]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if e.At.Before(from) || !e.At.Before(to) {
			continue
		}
		account := e.User.Name[strings.LastIndex(e.User.Name, ":")+1:]
		out[Call{account, e.Verb, e.what()}]++
	}
	return out, lines.Err()
}

// event is what is read of an audit event (audit.k8s.io/v1).
type event struct {
	At   time.Time `json:"requestReceivedTimestamp"`
	Verb string    `json:"verb"`
	URI  string    `json:"requestURI"`
	User struct {
		Name string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
}

func (e *event) what() string {
	switch {
	case e.Object.Resource == "":
		path, _, _ := strings.Cut(e.URI, "?")
		return path
	case e.Object.Subresource != "":
		return e.Object.Resource + "/" + e.Object.Subresource
	default:
		return e.Object.Resource
	}
}
