{{- define "ferrule.labels" -}}
app.kubernetes.io/name: ferrule-worker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ferrule.securityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- end -}}

{{- define "ferrule.database" -}}
- name: FERRULE_DATABASE
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: url}}
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: password}}
{{- end -}}
