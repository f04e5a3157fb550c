{{- define "counterd.name" -}}
{{ .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* What selects the pods of a component: counterd or memcached. */}}
{{- define "counterd.selector" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "counterd.labels" -}}
{{ include "counterd.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* By name. A server that restarts stays the same server, under another address. */}}
{{- define "counterd.servers" -}}
{{- if .Values.memcached.enabled }}
{{- $name := printf "%s-memcached" (include "counterd.name" .) }}
{{- range $i := until (int .Values.memcached.replicaCount) }}
{{- if $i }},{{ end }}{{ $name }}-{{ $i }}.{{ $name }}:11211
{{- end }}
{{- else }}
{{- join "," .Values.memcached.servers }}
{{- end }}
{{- end }}

{{- define "counterd.scheduling" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "counterd.probe" -}}
httpGet:
  path: {{ .path }}
  port: admin
  {{- if .root.Values.tls.existingSecret }}
  scheme: HTTPS
  {{- end }}
{{- end }}
