// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/yaml"
)

// ArgsAPIVersion and ArgsKind identify the plugin's arguments; both may be left
// out of a configuration file.
const (
	ArgsAPIVersion = "slipway.sh/v1alpha1"
	ArgsKind       = "SlipwayArgs"
)

// Defaults of SlipwayArgs, and the only place where they are written.
const (
	// DefaultBatchDebounce is the quiet time after the queue has drained: none.
	// Pods that are already on the watch are in the queue, so it has not drained
	// before they have had their cycle; and those that come while a batch is
	// planned and its claims are written, some milliseconds, are the next batch.
	DefaultBatchDebounce = 0
	// DefaultBatchMax bounds how long a batch may stay open while pods keep coming.
	DefaultBatchMax = 100 * time.Millisecond
	// DefaultEarlyLaunch is how many pods a batch that is still open has when its full nodes are launched for the first time:
	// some milliseconds of scheduling cycles, and more than what comes one by one.
	DefaultEarlyLaunch = 16
	// DefaultLookAhead bounds what one step plans for pods that do not exist yet; what it leaves out is planned with the
	// next pod of the same owner.
	DefaultLookAhead = 5000
	// DefaultGateDeadline is the safety net under a lost release. It costs one
	// failed scheduling cycle a pod when it passes, so it may be short compared
	// with the slowest boot of an instance.
	DefaultGateDeadline = 5 * time.Minute
)

// The longest times that are of any use: pods wait that long for nothing.
const (
	longestBatch    = time.Minute
	longestDeadline = 24 * time.Hour
)

// SlipwayArgs are the arguments of the Slipway plugin, given as
// profiles[].pluginConfig[].args of a KubeSchedulerConfiguration.
type SlipwayArgs struct {
	metav1.TypeMeta `json:",inline"`
	// BatchDebounce is how long after the last offered pod and the draining of
	// the scheduling queue a batch is planned. Zero plans at once.
	BatchDebounce *metav1.Duration `json:"batchDebounce,omitempty"`
	// BatchMax is the longest time between the first pod of a batch and its plan.
	BatchMax *metav1.Duration `json:"batchMax,omitempty"`
	// EarlyLaunch is how many pods have to have come for the nodes that are full already to be launched while the batch is
	// still open; that is looked at again whenever four times as many have come. Zero has all nodes wait for the batch to close.
	EarlyLaunch *int32 `json:"earlyLaunch,omitempty"`
	// LookAhead is the most pods planned in one step before their owners have created them. Zero turns look-ahead off.
	LookAhead *int32 `json:"lookAhead,omitempty"`
	// GateDeadline is the longest time a pod stays parked without being looked
	// at again.
	GateDeadline *metav1.Duration `json:"gateDeadline,omitempty"`
	// ProvisionFirst has the profile's pods buy a node rather than preempt others, and preempt only when no node can be
	// bought. A pod's annotation [ProvisionFirstAnnotation] overrides it.
	ProvisionFirst *bool `json:"provisionFirst,omitempty"`
}

// DecodeArgs decodes what a scheduler configuration holds for the plugin,
// strictly, and returns it defaulted and validated. A nil object, which is what
// the framework passes when there is no entry, gives the defaults. Errors name
// the field.
func DecodeArgs(obj runtime.Object) (*SlipwayArgs, error) {
	args := &SlipwayArgs{}
	if obj != nil {
		unknown, ok := obj.(*runtime.Unknown)
		if !ok {
			return nil, fmt.Errorf("decoding %s: want raw JSON or YAML, got %T", ArgsKind, obj)
		}
		if err := decodeStrict(unknown.Raw, args); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", ArgsKind, err)
		}
	}
	args.setDefaults()
	if errs := args.validate(); len(errs) > 0 {
		return nil, fmt.Errorf("validating %s: %w", ArgsKind, errs.ToAggregate())
	}
	return args, nil
}

// ArgsOf returns the plugin's arguments in a profile and whether the profile
// names the plugin at all, be it in multiPoint or in postFilter.
func ArgsOf(profile schedulerapi.KubeSchedulerProfile) (args *SlipwayArgs, enabled bool, err error) {
	if profile.Plugins == nil || !lists(profile.Plugins.MultiPoint) && !lists(profile.Plugins.PostFilter) {
		return nil, false, nil
	}
	var raw runtime.Object
	for _, pc := range profile.PluginConfig {
		if pc.Name == Name {
			raw = pc.Args
		}
	}
	args, err = DecodeArgs(raw)
	if err != nil {
		return nil, true, fmt.Errorf("reading profile %q: %w", profile.SchedulerName, err)
	}
	return args, true, nil
}

// Shared names the arguments that differ from other's and hold for all profiles together, "" for none: there is one batch,
// and one gate, for the pods of all of them.
func (a *SlipwayArgs) Shared(other *SlipwayArgs) string {
	var differ []string
	for name, same := range map[string]bool{
		"batchDebounce": *a.BatchDebounce == *other.BatchDebounce,
		"batchMax":      *a.BatchMax == *other.BatchMax,
		"earlyLaunch":   *a.EarlyLaunch == *other.EarlyLaunch,
		"lookAhead":     *a.LookAhead == *other.LookAhead,
	} {
		if !same {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	return strings.Join(differ, ", ")
}

func lists(set schedulerapi.PluginSet) bool {
	for _, p := range set.Enabled {
		if p.Name == Name {
			return true
		}
	}
	return false
}

// decodeStrict accepts JSON and YAML and refuses unknown and repeated fields.
func decodeStrict(raw []byte, into *SlipwayArgs) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	asJSON, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(asJSON))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (a *SlipwayArgs) setDefaults() {
	for _, d := range []struct {
		field **metav1.Duration
		value time.Duration
	}{
		{&a.BatchDebounce, DefaultBatchDebounce},
		{&a.BatchMax, DefaultBatchMax},
		{&a.GateDeadline, DefaultGateDeadline},
	} {
		if *d.field == nil {
			*d.field = &metav1.Duration{Duration: d.value}
		}
	}
	if a.ProvisionFirst == nil {
		a.ProvisionFirst = new(false)
	}
	if a.EarlyLaunch == nil {
		a.EarlyLaunch = new(int32(DefaultEarlyLaunch))
	}
	if a.LookAhead == nil {
		a.LookAhead = new(int32(DefaultLookAhead))
	}
}

func (a *SlipwayArgs) validate() field.ErrorList {
	var errs field.ErrorList
	if a.APIVersion != "" && a.APIVersion != ArgsAPIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), a.APIVersion, []string{ArgsAPIVersion}))
	}
	if a.Kind != "" && a.Kind != ArgsKind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), a.Kind, []string{ArgsKind}))
	}
	if a.BatchDebounce.Duration < 0 {
		errs = append(errs, field.Invalid(field.NewPath("batchDebounce"), a.BatchDebounce.Duration.String(), "must not be negative"))
	}
	if a.BatchMax.Duration <= 0 || a.BatchMax.Duration < a.BatchDebounce.Duration || a.BatchMax.Duration > longestBatch {
		errs = append(errs, field.Invalid(field.NewPath("batchMax"), a.BatchMax.Duration.String(), fmt.Sprintf("must be positive, not below batchDebounce and not above %v", longestBatch)))
	}
	if *a.EarlyLaunch < 0 {
		errs = append(errs, field.Invalid(field.NewPath("earlyLaunch"), *a.EarlyLaunch, "must not be negative"))
	}
	if *a.LookAhead < 0 {
		errs = append(errs, field.Invalid(field.NewPath("lookAhead"), *a.LookAhead, "must not be negative"))
	}
	if a.GateDeadline.Duration < time.Second || a.GateDeadline.Duration > longestDeadline {
		errs = append(errs, field.Invalid(field.NewPath("gateDeadline"), a.GateDeadline.Duration.String(), fmt.Sprintf("must be at least 1s and at most %v", longestDeadline)))
	}
	return errs
}
