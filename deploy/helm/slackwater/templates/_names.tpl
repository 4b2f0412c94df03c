{{- define "slackwater.name" -}}
{{- if contains "slackwater" .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- else -}}{{ printf "%s-slackwater" (.Release.Name | trunc 29 | trimSuffix "-") }}{{- end -}}
{{- end }}

{{- define "slackwater.secret" -}}{{ .Values.secrets.existing | default (printf "%s-secrets" (include "slackwater.name" .)) }}{{- end }}

{{- define "slackwater.account" -}}{{ .Values.serviceAccount.name | default (ternary (include "slackwater.name" .) "default" .Values.serviceAccount.create) }}{{- end }}

{{- define "slackwater.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}

{{- define "slackwater.labels" -}}
app.kubernetes.io/name: slackwater
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What selects the pods of a part: (dict "root" $ "part" "api"), and "pool" of engines and workers. */}}
{{- define "slackwater.selector" -}}
app.kubernetes.io/name: slackwater
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- with .pool }}
slackwater/pool: {{ . }}
{{- end }}
{{- end }}

{{/* Refuses a scale of more at least than at most: (dict "whose" … "name" of the value "of" what has `min` and `max`). */}}
{{- define "slackwater.bounds" -}}
{{- if gt (int .of.min) (int .of.max) }}
{{- fail (printf "%s: %s.min is %v, more than %s.max, %v" .whose .name .of.min .name .of.max) }}
{{- end }}
{{- end }}

{{- define "slackwater.pairs" -}}
{{- range $name, $value := . }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
