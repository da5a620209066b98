// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// minor is the release line this build is for; a scheduler may be one minor older than its API server, and never newer.
const minor = 37

// rule says what of a site matters to a move; nothing if nothing does.
type rule func(*Site) []Finding

// CheckTakeover says what keeps Slipway from taking a cluster over from Karpenter.
func CheckTakeover(s *Site) *Report {
	return check(s, []rule{
		version, defined, karpenterThere, slipwayThere, sameLease, sameCluster, sameSettings, serves, gates, gitops, disrupts,
		poolsReady, inFlight, driftedNow, stamps,
	})
}

// CheckHandback says what keeps Karpenter from getting a cluster back.
func CheckHandback(s *Site) *Report {
	return check(s, []rule{defined, karpenterThere, slipwaysPods, admission, ownPools, gitops, inFlight, driftedNow})
}

func check(s *Site, rules []rule) *Report {
	var out []Finding
	for _, r := range rules {
		out = append(out, r(s)...)
	}
	return newReport(out)
}

func version(s *Site) []Finding {
	n, err := strconv.Atoi(strings.TrimRight(s.Minor, "+"))
	if err == nil && (n == minor || n == minor+1) {
		return nil
	}
	return []Finding{{
		Blocks, "version", fmt.Sprintf("the API server is Kubernetes 1.%s; this release of Slipway schedules for 1.%d and 1.%d", s.Minor, minor, minor+1),
		"install the release of Slipway for that minor (docs/limits.md)",
	}}
}

func defined(s *Site) []Finding {
	var out []Finding
	for _, name := range definitions() {
		at := slices.IndexFunc(s.Definitions, func(d apiextensionsv1.CustomResourceDefinition) bool { return d.Name == name })
		if at < 0 {
			out = append(out, Finding{
				Blocks, "definitions", fmt.Sprintf("the custom resource definition %s is missing", name),
				"is this the right --context? Without Karpenter there is nothing to take over: see docs/install.md",
			})
			continue
		}
		d := &s.Definitions[at]
		served := slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == "v1" && v.Served && v.Storage
		})
		if !served {
			out = append(out, Finding{Blocks, "definitions", name + " is not stored as v1", "move to Karpenter 1.x and its v1 API first"})
		}
		if c := d.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
			out = append(out, Finding{
				Blocks, "definitions", name + " is converted by a webhook of Karpenter's, which would be away with it",
				"apply the definitions of Karpenter 1.1 or later, whose strategy is None",
			})
		}
	}
	return out
}

func karpenterThere(s *Site) []Finding {
	switch len(s.Karpenter) {
	case 0:
		return []Finding{{
			Blocks, "karpenter", fmt.Sprintf("no Deployment has the label %s=%s", nameLabel, karpenterName),
			"give its namespace with --karpenter-namespace, or its label to the Deployment",
		}}
	case 1:
	default:
		var found []string
		for i := range s.Karpenter {
			found = append(found, s.Karpenter[i].Namespace+"/"+s.Karpenter[i].Name)
		}
		return []Finding{{Blocks, "karpenter", "there are several Karpenters: " + names(found), "say which with --karpenter-namespace"}}
	}
	k := &s.Karpenter[0]
	if v := k.Labels[versionLabel]; strings.HasPrefix(v, "0.") {
		return []Finding{{Blocks, "karpenter", fmt.Sprintf("Karpenter is version %s, whose API is not v1", v), "upgrade it to 1.x first, by its own guide"}}
	}
	holder := s.holder()
	if holder == "" {
		holder = "nobody"
	}
	return []Finding{{
		Tells, "karpenter", fmt.Sprintf("Karpenter is Deployment %s/%s with %s; its lease is held by %s",
			k.Namespace, k.Name, count(int(replicas(k)), "replica", "replicas"), holder), "",
	}}
}

func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

func slipwayThere(s *Site) []Finding {
	if len(s.Slipway) == 0 {
		do := "install it"
		if len(s.Karpenter) == 1 {
			do = "install it; it waits for Karpenter's lease until the takeover:\n          " + s.install()
		}
		return []Finding{{Blocks, "slipway", fmt.Sprintf("namespace %q has no Slipway", s.Names.Slipway), do}}
	}
	var out []Finding
	for i := range s.Slipway {
		if d := &s.Slipway[i]; d.Status.ReadyReplicas == 0 {
			out = append(out, Finding{
				Blocks, "slipway", fmt.Sprintf("no pod of Deployment %s/%s is ready", d.Namespace, d.Name),
				fmt.Sprintf("see kubectl -n %s describe deployment %s, and its logs", d.Namespace, d.Name),
			})
		}
	}
	return out
}

// install is the command that installs Slipway with what Karpenter runs with.
func (s *Site) install() string {
	out := []string{"helm install slipway manifests/helm/slipway --namespace " + s.Names.Slipway + " --create-namespace"}
	for _, v := range []struct{ setting, value string }{
		{"CLUSTER_NAME", "clusterName"},
		{"CLUSTER_ENDPOINT", "clusterEndpoint"},
		{"INTERRUPTION_QUEUE", "interruptionQueue"},
		{"VM_MEMORY_OVERHEAD_PERCENT", "controller.vmMemoryOverheadPercent"},
		{"RESERVED_ENIS", "controller.reservedENIs"},
		{"ISOLATED_VPC", "controller.isolatedVPC"},
	} {
		if value, ok := setting(s.Karpenter, v.setting); ok && value != "" {
			out = append(out, fmt.Sprintf("--set %s=%s", v.value, value))
		}
	}
	out = append(out, "--set controller.leaderElectionNamespace="+s.leaseNamespace(),
		"--set 'scheduler.extraArgs={--serve-schedulers=default-scheduler,--disable-disruption}'")
	return strings.Join(out, " ")
}

func sameLease(s *Site) []Finding {
	if len(s.Slipway) == 0 || len(s.Karpenter) != 1 {
		return nil
	}
	want := s.leaseNamespace()
	have, _ := setting(s.Slipway, "LEADER_ELECTION_NAMESPACE")
	if have == "" {
		have = s.Slipway[0].Namespace
	}
	name, ok := setting(s.Slipway, "LEADER_ELECTION_NAME")
	if ok && name != s.Lease {
		return []Finding{{Blocks, "lease", fmt.Sprintf("Slipway takes the lease %q, Karpenter %q", name, s.Lease), "take --leader-election-name off Slipway's controller"}}
	}
	if have == want {
		return nil
	}
	return []Finding{{
		Blocks, "lease", fmt.Sprintf("Slipway takes the lease in namespace %q, Karpenter's is in %q, so both could work at once", have, want),
		fmt.Sprintf("helm upgrade slipway … --reuse-values --set controller.leaderElectionNamespace=%s", want),
	}}
}

func sameCluster(s *Site) []Finding {
	theirs, a := setting(s.Karpenter, "CLUSTER_NAME")
	mine, b := setting(s.Slipway, "CLUSTER_NAME")
	if !a || !b || theirs == mine {
		return nil
	}
	return []Finding{{
		Blocks, "cluster", fmt.Sprintf("Slipway's cluster name is %q, Karpenter's %q: instances would carry the wrong tags", mine, theirs),
		"helm upgrade slipway … --reuse-values --set clusterName=" + theirs,
	}}
}

// sameSettings compares what decides about nodes and has the same name in both.
func sameSettings(s *Site) []Finding {
	if len(s.Slipway) == 0 || len(s.Karpenter) != 1 {
		return nil
	}
	defaults := map[string]string{
		"INTERRUPTION_QUEUE": "", "VM_MEMORY_OVERHEAD_PERCENT": "0.075", "RESERVED_ENIS": "0", "ISOLATED_VPC": "false",
	}
	values := map[string]string{
		"INTERRUPTION_QUEUE": "interruptionQueue", "VM_MEMORY_OVERHEAD_PERCENT": "controller.vmMemoryOverheadPercent",
		"RESERVED_ENIS": "controller.reservedENIs", "ISOLATED_VPC": "controller.isolatedVPC",
	}
	var out []Finding
	for _, name := range []string{"INTERRUPTION_QUEUE", "ISOLATED_VPC", "RESERVED_ENIS", "VM_MEMORY_OVERHEAD_PERCENT"} {
		theirs, ok := setting(s.Karpenter, name)
		if !ok || theirs == "" {
			theirs = defaults[name]
		}
		mine, ok := setting(s.Slipway, name)
		if !ok || mine == "" {
			mine = defaults[name]
		}
		if mine != theirs {
			out = append(out, Finding{
				Warns, "settings", fmt.Sprintf("%s is %q for Karpenter and %q for Slipway", name, theirs, mine),
				fmt.Sprintf("helm upgrade slipway … --reuse-values --set %s=%s", values[name], theirs),
			})
		}
	}
	return out
}

// serves says whether Slipway will buy for the pods that Karpenter buys for.
func serves(s *Site) []Finding {
	if len(s.Slipway) == 0 {
		return nil
	}
	served, _ := setting(s.Slipway, "SERVE_SCHEDULERS")
	pools := map[string]bool{}
	for i := range s.Claims {
		pools[s.Claims[i].Status.NodeName] = true
	}
	waiting := map[string][]string{}
	for i := range s.Pods {
		p := &s.Pods[i]
		if finished(p) || p.Spec.SchedulerName == slipwayName || slices.Contains(strings.Split(served, ","), p.Spec.SchedulerName) || daemon(p) {
			continue
		}
		if p.Spec.NodeName == "" || pools[p.Spec.NodeName] {
			waiting[p.Spec.SchedulerName] = append(waiting[p.Spec.SchedulerName], p.Namespace+"/"+p.Name)
		}
	}
	var out []Finding
	for scheduler, pods := range waiting {
		out = append(out, Finding{
			Blocks, "schedulers", fmt.Sprintf("%s of scheduler %q on Karpenter's nodes or without one, for which Slipway would not buy: %s",
				count(len(pods), "pod", "pods"), scheduler, names(pods)),
			fmt.Sprintf("helm upgrade slipway … --reuse-values --set 'scheduler.extraArgs={--serve-schedulers=%s,--disable-disruption}'", scheduler),
		})
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	return out
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func daemon(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node")
}

// gates names gates of Karpenter's that are on and that Slipway has nothing for.
func gates(s *Site) []Finding {
	value := strings.Join(settings(s.Karpenter, "FEATURE_GATES"), ",")
	var out []Finding
	for gate, instead := range map[string]string{
		"NodeOverlay=true":         "NodeOverlays are ignored",
		"TerminateFirstDrift=true": "a static pool at its limit cannot replace a drifted node",
	} {
		if slices.Contains(strings.Split(strings.ReplaceAll(value, " ", ""), ","), gate) {
			out = append(out, Finding{Warns, "gates", fmt.Sprintf("Karpenter runs with %s; with Slipway %s", gate, instead), ""})
		}
	}
	if strings.Contains(value, "NodeRepair=true") {
		if mine := settings(s.Slipway, "FEATURE_GATES"); len(s.Slipway) > 0 && !strings.Contains(strings.Join(mine, ","), "NodeRepair=true") {
			out = append(out, Finding{Warns, "gates", "Karpenter repairs nodes (NodeRepair=true), Slipway would not", "helm upgrade slipway … --reuse-values --set scheduler.featureGates.NodeRepair=true"})
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	return out
}

// gitops says who would set replicas back.
func gitops(s *Site) []Finding {
	var out []Finding
	for _, d := range slices.Concat(s.Karpenter, s.Slipway) {
		for _, mark := range []string{
			"argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id", "kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name",
		} {
			if d.Labels[mark] != "" || d.Annotations[mark] != "" {
				out = append(out, Finding{
					Warns, "gitops", fmt.Sprintf("Deployment %s/%s is kept by a GitOps tool (%s), which may set its replicas back", d.Namespace, d.Name, mark),
					"change its replicas where the tool reads them, or have the tool leave them alone, before you move",
				})
				break
			}
		}
	}
	return out
}

func disrupts(s *Site) []Finding {
	if len(s.Slipway) == 0 {
		return nil
	}
	if off, _ := setting(s.Slipway, "DISABLE_DISRUPTION"); off == "true" {
		return nil
	}
	return []Finding{{
		Warns, "disruption", "Slipway consolidates as soon as it has taken over",
		"to look first, start it with --disable-disruption in scheduler.extraArgs",
	}}
}

func poolsReady(s *Site) []Finding {
	var out []Finding
	for i := range s.Pools {
		if p := &s.Pools[i]; !p.StatusConditions().Root().IsTrue() {
			out = append(out, Finding{
				Warns, "pools", fmt.Sprintf("NodePool %q is not ready: %s", p.Name, p.StatusConditions().Root().Message), "see slipway explain nodepool " + p.Name,
			})
		}
	}
	return out
}

func inFlight(s *Site) []Finding {
	if open := nameless(s.Claims, func(*karpv1.NodeClaim) bool { return true }); len(open) > 0 {
		return []Finding{{
			Tells, "launches", fmt.Sprintf("%s no instance yet: %s", count(len(open), "NodeClaim has", "NodeClaims have"), names(open)),
			"the move waits until whoever began them is done",
		}}
	}
	return nil
}

func driftedNow(s *Site) []Finding {
	if all := drifted(s.Claims); len(all) > 0 {
		return []Finding{{
			Tells, "drift", fmt.Sprintf("%s drifted already: %s", count(len(all), "NodeClaim has", "NodeClaims have"), names(all)),
			"they are replaced inside their pools' budgets by whoever owns them",
		}}
	}
	return nil
}

// stamps says how many claims carry hashes of another version, which are stamped again and not compared.
func stamps(s *Site) []Finding {
	other := 0
	for i := range s.Claims {
		if c := &s.Claims[i]; shared(c) && !stamped(c) {
			other++
		}
	}
	if other == 0 {
		return nil
	}
	return []Finding{{
		Tells, "hashes", fmt.Sprintf("%s hashes of another version; they are stamped again, so that nothing drifts", count(other, "NodeClaim has", "NodeClaims have")), "",
	}}
}

// stamped reports whether a claim's hashes are of the versions that Slipway compares.
func stamped(c *karpv1.NodeClaim) bool {
	return c.Annotations[karpv1.NodePoolHashVersionAnnotationKey] == karpv1.NodePoolHashVersion &&
		c.Annotations[v1.AnnotationEC2NodeClassHashVersion] == v1.EC2NodeClassHashVersion
}

// slipwaysPods says which pods would have no scheduler.
func slipwaysPods(s *Site) []Finding {
	var left []string
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Spec.SchedulerName == slipwayName && !finished(p) {
			left = append(left, p.Namespace+"/"+p.Name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return []Finding{{
		Blocks, "schedulers", fmt.Sprintf("%s scheduler slipway, and their successors would have none: %s", count(len(left), "pod names", "pods name"), names(left)),
		`patch their workloads: kubectl patch deployment NAME --type merge -p '{"spec":{"template":{"spec":{"schedulerName":"default-scheduler"}}}}'`,
	}}
}

// admission says where new pods would still be given to Slipway.
func admission(s *Site) []Finding {
	var managed []string
	for i := range s.Namespaces {
		if n := &s.Namespaces[i]; n.Labels["slipway.sh/managed"] == "true" {
			managed = append(managed, n.Name)
		}
	}
	if len(managed) == 0 {
		return nil
	}
	return []Finding{{
		Blocks, "admission", "pods of managed namespaces may be given to Slipway by their WorkloadPolicies: " + names(managed),
		"kubectl label namespace NAME slipway.sh/managed-",
	}}
}

func ownPools(s *Site) []Finding {
	var own []string
	for i := range s.Pools {
		if ref := s.Pools[i].Spec.Template.Spec.NodeClassRef; ref != nil && ref.Group == ownGroup {
			own = append(own, s.Pools[i].Name)
		}
	}
	if len(own) == 0 {
		return nil
	}
	return []Finding{{
		Warns, "pools", "NodePools of group slipway.sh stay behind, because Karpenter does not know it: " + names(own),
		"delete them, or point their nodeClassRef to a class of karpenter.k8s.aws",
	}}
}
