{{- define "lens.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "lens.labels" -}}
app.kubernetes.io/name: lens
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "lens.selector" -}}
app.kubernetes.io/name: lens
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lens.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "lens.url" -}}
http://{{ include "lens.name" . }}:{{ .Values.service.port }}/api/v1/records
{{- end -}}

{{- /* The configuration of the daemon: the chart's, with daemon.config merged over it. */ -}}
{{- define "lens.daemonConfig" -}}
{{- $store := dict "type" "postgresql" -}}
{{- if .Values.database.existingSecret -}}
{{- $_ := set $store "dsn" "${LENS_DSN}" -}}
{{- end -}}
{{- $server := dict "listen" "0.0.0.0:8080" "cluster_name" .Values.clusterName "open_ingest" .Values.openIngest "shutdown_deadline_seconds" 20 -}}
{{- $config := dict "server" $server "collectors" (dict "pods" (dict "type" "kubernetes")) "sinks" (dict "store" $store) -}}
{{- if .Values.monitoring.enabled -}}
{{- $_ := set $config.sinks "scrape" (dict "type" "prometheus" "required" false) -}}
{{- end -}}
{{- toYaml (mustMergeOverwrite $config (deepCopy .Values.daemon.config)) -}}
{{- end -}}

{{- define "lens.agentConfig" -}}
{{- $to := dict "type" "http" "url" (include "lens.url" .) -}}
{{- if .Values.agent.tokenSecret -}}
{{- $_ := set $to "token" "${LENS_INGEST_TOKEN}" -}}
{{- end -}}
{{- $collectors := dict "devices" (dict "type" "pod_resources" "node" "${NODE_NAME}") "machine" (dict "type" "host") -}}
{{- if .Values.agent.logs.enabled -}}
{{- $_ := set $collectors "logs" (dict "type" "training_log" "paths" (list .Values.agent.logs.path) "node" "${NODE_NAME}") -}}
{{- end -}}
{{- if .Values.agent.hookSpool.enabled -}}
{{- $_ := set $collectors "left" (dict "type" "hook_spool" "path" "/hook-spool") -}}
{{- end -}}
{{- $server := dict "listen" "127.0.0.1:8080" "cluster_name" .Values.clusterName -}}
{{- $config := dict "server" $server "sources" (dict) "collectors" $collectors "sinks" (dict "daemon" $to) -}}
{{- toYaml (mustMergeOverwrite $config (deepCopy .Values.agent.config)) -}}
{{- end -}}

{{- define "lens.collectorsConfig" -}}
{{- $to := dict "type" "http" "url" (include "lens.url" .) -}}
{{- if .Values.agent.tokenSecret -}}
{{- $_ := set $to "token" "${LENS_INGEST_TOKEN}" -}}
{{- end -}}
{{- $sinks := .Values.collectors.sinks | default (dict "daemon" $to) -}}
{{- toYaml (dict "server" (dict "cluster_name" .Values.clusterName) "sources" (dict) "collectors" .Values.collectors.config "sinks" $sinks) -}}
{{- end -}}

{{- define "lens.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
