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

{{- /* The Secret of the token by which agents, collectors and jobs send; empty where none is needed. */ -}}
{{- define "lens.tokenSecret" -}}
{{- if .Values.agent.tokenSecret -}}
{{- .Values.agent.tokenSecret -}}
{{- else if not .Values.openIngest -}}
{{- include "lens.name" . }}-ingest
{{- end -}}
{{- end -}}

{{- /* What would be installed and could not work: said before anything is changed. */ -}}
{{- define "lens.check" -}}
{{- $server := .Values.daemon.config.server | default dict -}}
{{- $listen := $server.listen | default "0.0.0.0:8080" -}}
{{- if not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\]):8080$" $listen) -}}
{{- fail (printf "daemon.config.server.listen: %s is not reached by the Service and the probes; leave it out (0.0.0.0:8080), and set service.port" $listen) -}}
{{- end -}}
{{- if or $server.tls_certificate $server.tls_key -}}
{{- fail "daemon.config.server.tls_certificate: probes, agents and the Service speak HTTP; put TLS in front with ingress.tlsSecret" -}}
{{- end -}}
{{- $sources := .Values.daemon.config.sources -}}
{{- if and $sources (not (hasKey $sources "records_api")) (or .Values.agent.enabled (and .Values.collectors.enabled (not .Values.collectors.sinks))) -}}
{{- fail "daemon.config.sources: agents and collectors send to records_api; add `records_api: {}`" -}}
{{- end -}}
{{- if and .Values.collectors.enabled (not .Values.collectors.config) -}}
{{- fail "collectors.config: it names no collector; add one, or set collectors.enabled: false" -}}
{{- end -}}
{{- if .Values.cluster.enabled -}}
{{- if not .Values.cluster.config.nats -}}
{{- fail "cluster.config.nats: it names no server; add the addresses of your NATS servers, nats://HOST:4222" -}}
{{- end -}}
{{- if not (or .Values.database.existingSecret (get (.Values.daemon.config.sinks | default dict) "store" | default dict).dsn) -}}
{{- fail "database.existingSecret: several daemons need one PostgreSQL that all of them reach; name a Secret with its DSN" -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey (.Values.daemon.config.sinks | default dict) "store") .Values.database.existingSecret -}}
{{- if (get .Values.daemon.config.sinks "store" | default dict).dsn -}}
{{- fail "daemon.config.sinks.store.dsn: database.existingSecret gives one too; remove one of them" -}}
{{- end -}}
{{- end -}}
{{- range $part := list .Values.daemon .Values.agent -}}
{{- $names := list "data" "config" "tmp" -}}
{{- range $mount := $part.extraVolumeMounts -}}
{{- $known := $names -}}
{{- range $volume := $part.extraVolumes -}}{{- $known = append $known $volume.name -}}{{- end -}}
{{- if not (has $mount.name $known) -}}
{{- fail (printf "extraVolumeMounts: there is no volume %s; add it to extraVolumes beside it" $mount.name) -}}
{{- end -}}
{{- end -}}
{{- range $volume := $part.extraVolumes -}}
{{- if has $volume.name (concat $names (list "pod-resources" "logs" "hook-spool")) -}}
{{- fail (printf "extraVolumes: the chart has a volume %s itself; choose another name" $volume.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
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
{{- if include "lens.tokenSecret" . -}}
{{- $_ := set $server "ingest_token" "${LENS_INGEST_TOKEN}" -}}
{{- end -}}
{{- $config := dict "server" $server "collectors" (dict "pods" (dict "type" "kubernetes")) "sinks" (dict "store" $store) -}}
{{- if .Values.monitoring.enabled -}}
{{- $_ := set $config.sinks "scrape" (dict "type" "prometheus" "required" .Values.cluster.enabled) -}}
{{- end -}}
{{- if .Values.cluster.enabled -}}
{{- $_ := set $config "cluster" .Values.cluster.config -}}
{{- end -}}
{{- toYaml (mustMergeOverwrite $config (deepCopy .Values.daemon.config)) -}}
{{- end -}}

{{- define "lens.agentConfig" -}}
{{- $to := dict "type" "http" "url" (include "lens.url" .) -}}
{{- if include "lens.tokenSecret" . -}}
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
{{- if include "lens.tokenSecret" . -}}
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
