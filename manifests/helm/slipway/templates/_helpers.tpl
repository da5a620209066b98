{{- define "slipway.labels" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* What selects the pods of a workload: dict "root" . "component" name. */}}
{{- define "slipway.selector" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "slipway.image" -}}
{{ .root.Values.image.registry }}/{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- /* The service accounts of the installation, by the role each is bound to. */}}
{{- define "slipway.accounts" -}}
{{- if eq .Values.installation "joint" -}}
scheduler: slipway
controller: slipway
{{- else -}}
scheduler: slipway-scheduler
controller: slipway-controller
{{- end }}
{{- end }}

{{- define "slipway.certificateSecret" -}}
{{- if eq .Values.admission.certificates.mode "secret" -}}
{{ required "admission.certificates.secretName is required in mode secret" .Values.admission.certificates.secretName }}
{{- else -}}
slipway-webhook-tls
{{- end }}
{{- end }}

{{- define "slipway.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "slipway.env" -}}
- name: CLUSTER_NAME
  value: {{ required "clusterName is required: the name of the EKS cluster" .Values.clusterName | quote }}
{{- with .Values.clusterEndpoint }}
- name: CLUSTER_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- with .Values.clusterCABundle }}
- name: CLUSTER_CA_BUNDLE
  value: {{ . | quote }}
{{- end }}
{{- with .Values.region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
- name: VM_MEMORY_OVERHEAD_PERCENT
  value: {{ .Values.controller.vmMemoryOverheadPercent | quote }}
- name: RESERVED_ENIS
  value: {{ .Values.controller.reservedENIs | quote }}
- name: ISOLATED_VPC
  value: {{ .Values.controller.isolatedVPC | quote }}
{{- end }}

{{- define "slipway.container.scheduler" -}}
name: scheduler
image: {{ include "slipway.image" (dict "root" . "name" "slipway-scheduler") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
- --config=/etc/slipway/scheduler.yaml
- --secure-port={{ .Values.metrics.schedulerPort }}
- --v={{ .Values.scheduler.logLevel }}
{{- range $gate, $on := .Values.scheduler.featureGates }}
- --feature-gates={{ $gate }}={{ $on }}
{{- end }}
{{- if and (eq .Values.installation "split") (not .Values.controller.disableDryRun) }}
- --dry-run
{{- end }}
{{- if .Values.admission.enabled }}
- --admission-namespace={{ .Release.Namespace }}
- --catalog-namespace={{ .Release.Namespace }}
{{- end }}
{{- range .Values.scheduler.extraArgs }}
- {{ . | quote }}
{{- end }}
env:
{{ include "slipway.env" . }}
{{- with .Values.scheduler.env }}
{{ toYaml . }}
{{- end }}
ports:
- {name: sched-metrics, containerPort: {{ .Values.metrics.schedulerPort }}}
livenessProbe:
  httpGet: {path: /livez, port: sched-metrics, scheme: HTTPS}
  initialDelaySeconds: 15
  timeoutSeconds: 10
readinessProbe:
  httpGet: {path: /readyz, port: sched-metrics, scheme: HTTPS}
  periodSeconds: 5
  timeoutSeconds: 10
resources: {{ toYaml .Values.scheduler.resources | nindent 2 }}
securityContext: {{ include "slipway.securityContext" . | nindent 2 }}
volumeMounts:
- {name: config, mountPath: /etc/slipway, readOnly: true}
{{- end }}

{{- define "slipway.container.controller" -}}
name: controller
image: {{ include "slipway.image" (dict "root" . "name" "slipway-controller") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
- --leader-election-namespace={{ .Values.controller.leaderElectionNamespace | default .Release.Namespace }}
- --metrics-port={{ .Values.metrics.controllerPort }}
- --health-probe-port={{ .Values.metrics.healthPort }}
- --log-level={{ .Values.controller.logLevel }}
{{- with .Values.interruptionQueue }}
- --interruption-queue={{ . }}
{{- end }}
{{- if .Values.controller.disableDryRun }}
- --disable-dry-run
{{- else if eq .Values.installation "split" }}
- --dry-run-by-scheduler
{{- end }}
{{- range .Values.controller.extraArgs }}
- {{ . | quote }}
{{- end }}
env:
{{ include "slipway.env" . }}
{{- with .Values.controller.env }}
{{ toYaml . }}
{{- end }}
ports:
- {name: ctrl-metrics, containerPort: {{ .Values.metrics.controllerPort }}}
- {name: health, containerPort: {{ .Values.metrics.healthPort }}}
livenessProbe:
  httpGet: {path: /healthz, port: health}
  initialDelaySeconds: 15
  timeoutSeconds: 10
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 10
resources: {{ toYaml .Values.controller.resources | nindent 2 }}
securityContext: {{ include "slipway.securityContext" . | nindent 2 }}
{{- end }}

{{- define "slipway.container.webhook" -}}
{{- $a := .Values.admission -}}
name: webhook
image: {{ include "slipway.image" (dict "root" . "name" "slipway-webhook") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
- --namespace={{ .Release.Namespace }}
- --port={{ $a.ports.admission }}
- --metrics-port={{ $a.ports.metrics }}
- --health-probe-port={{ $a.ports.health }}
- --log-level={{ $a.logLevel }}
- --native-policies={{ not (empty $a.policies) }}
- --inject-scheduler-name={{ not $a.mutations }}
{{- with $a.canaryNamespace }}
- --canary-namespace={{ . }}
- --canary-scheduler-name={{ $.Values.scheduler.schedulerName }}
{{- end }}
{{- if ne $a.certificates.mode "self" }}
- --cert-dir=/etc/slipway/certificates
{{- end }}
{{- range $a.extraArgs }}
- {{ . | quote }}
{{- end }}
env:
- name: IDENTITY
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- with $a.env }}
{{ toYaml . }}
{{- end }}
ports:
- {name: admission, containerPort: {{ $a.ports.admission }}}
- {name: hook-metrics, containerPort: {{ $a.ports.metrics }}}
- {name: hook-health, containerPort: {{ $a.ports.health }}}
livenessProbe:
  httpGet: {path: /healthz, port: hook-health}
  initialDelaySeconds: 10
  timeoutSeconds: 10
readinessProbe:
  httpGet: {path: /readyz, port: hook-health}
  periodSeconds: 2
  failureThreshold: 1
resources: {{ toYaml $a.resources | nindent 2 }}
securityContext: {{ include "slipway.securityContext" . | nindent 2 }}
{{- if ne $a.certificates.mode "self" }}
volumeMounts:
- {name: certificates, mountPath: /etc/slipway/certificates, readOnly: true}
{{- end }}
{{- end }}

{{- /* Namespaces that the webhooks are asked about: those that opted in, or none. */}}
{{- define "slipway.namespaceSelector" -}}
matchExpressions:
- {key: slipway.sh/managed, operator: In, values: ["true"]}
- {key: slipway.sh/admission, operator: NotIn, values: ["off"]}
- {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease, kube-public, {{ .Release.Namespace }}]}
{{- include "slipway.served" . }}
{{- end }}

{{- /* A requirement that nothing meets, if the webhooks are not to be served. */}}
{{- define "slipway.served" -}}
{{- if not .Values.admission.serve }}
- {key: slipway.sh/nothing, operator: In, values: ["matches"]}
{{- end }}
{{- end }}

{{- /* How the API server calls a hook: dict "root" . "path". caBundle is kept by slipway-webhook or cert-manager. */}}
{{- define "slipway.hook" -}}
admissionReviewVersions: [v1]
clientConfig:
  service: {name: slipway-webhook, namespace: {{ .root.Release.Namespace }}, path: {{ .path }}, port: 443}
  {{- if eq .root.Values.admission.certificates.mode "secret" }}
  caBundle: {{ .root.Values.admission.certificates.caBundle | quote }}
  {{- end }}
failurePolicy: Ignore
matchPolicy: Equivalent
sideEffects: None
{{- end }}

{{- /* A Deployment: dict "root" . "name" "component" "account" "containers" (list of names); and, where they differ from the
others', "replicas", "labels" and "annotations" of the pods. */}}
{{- define "slipway.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{ include "slipway.labels" $root | nindent 4 }}
spec:
  replicas: {{ .replicas | default $root.Values.replicas }}
  revisionHistoryLimit: 5
  # A new replica only waits for the lease; the old one leaves it when it ends.
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}
  selector:
    matchLabels: {{ include "slipway.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "slipway.selector" . | nindent 8 }}
        {{- with .labels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ first .containers }}
        {{- if has "scheduler" .containers }}
        # A changed configuration starts new pods.
        checksum/config: {{ include (print $root.Template.BasePath "/configmap.yaml") $root | sha256sum }}
        {{- end }}
        {{- with .annotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $root.Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ .account }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{ toYaml . | nindent 6 }}
      {{- end }}
      priorityClassName: {{ $root.Values.priorityClassName }}
      hostNetwork: {{ $root.Values.hostNetwork }}
      {{- if $root.Values.hostNetwork }}
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
      {{- range .containers }}
      - {{ include (print "slipway.container." .) $root | nindent 8 | trim }}
      {{- end }}
      {{- if has "scheduler" .containers }}
      volumes:
      - name: config
        configMap: {name: slipway-scheduler}
      {{- else if and (has "webhook" .containers) (ne $root.Values.admission.certificates.mode "self") }}
      volumes:
      - name: certificates
        secret: {secretName: {{ include "slipway.certificateSecret" $root }}}
      {{- end }}
      nodeSelector: {{ toYaml $root.Values.nodeSelector | nindent 8 }}
      affinity:
        {{- toYaml $root.Values.affinity | nindent 8 }}
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels: {{ include "slipway.selector" . | nindent 16 }}
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: {{ $root.Values.zoneSpread }}
        labelSelector:
          matchLabels: {{ include "slipway.selector" . | nindent 12 }}
      tolerations: {{ toYaml $root.Values.tolerations | nindent 6 }}
{{- end }}
