package podspec

// Honoured lists the fields of a pod's spec that do here what they do on a real node. "**" stands for all below.
// What is said of containers holds for init containers too, except probes and lifecycle hooks.
var Honoured = []string{
	"nodeName", "nodeSelector.**", "restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds",
	"hostNetwork", "hostname", "subdomain", "hostAliases[].**", "dnsPolicy", "dnsConfig.**",
	"serviceAccountName", "serviceAccount", "automountServiceAccountToken",
	"securityContext.runAsUser", "securityContext.runAsGroup", "securityContext.runAsNonRoot",
	"securityContext.supplementalGroups[]", "securityContext.fsGroup", "securityContext.sysctls[].**",

	"volumes[].name", "volumes[].emptyDir.**", "volumes[].configMap.**", "volumes[].secret.**",
	"volumes[].hostPath.**", "volumes[].persistentVolumeClaim.**",
	"volumes[].downwardAPI.defaultMode", "volumes[].downwardAPI.items[].path",
	"volumes[].downwardAPI.items[].mode", "volumes[].downwardAPI.items[].fieldRef.**",
	"volumes[].projected.defaultMode", "volumes[].projected.sources[].serviceAccountToken.**",
	"volumes[].projected.sources[].configMap.**", "volumes[].projected.sources[].secret.**",
	"volumes[].projected.sources[].downwardAPI.items[].path",
	"volumes[].projected.sources[].downwardAPI.items[].mode",
	"volumes[].projected.sources[].downwardAPI.items[].fieldRef.**",

	"containers[].name", "containers[].image", "containers[].command[]", "containers[].args[]",
	"containers[].workingDir", "containers[].ports[].**",
	"containers[].env[].name", "containers[].env[].value", "containers[].env[].valueFrom.fieldRef.**",
	"containers[].env[].valueFrom.configMapKeyRef.**", "containers[].env[].valueFrom.secretKeyRef.**",
	"containers[].envFrom[].**",
	"containers[].volumeMounts[].name", "containers[].volumeMounts[].mountPath",
	"containers[].volumeMounts[].subPath", "containers[].volumeMounts[].readOnly",
	"containers[].volumeMounts[].mountPropagation",
	"containers[].readinessProbe.httpGet.**", "containers[].livenessProbe.httpGet.**", "containers[].startupProbe.httpGet.**",
	"containers[].readinessProbe.tcpSocket.**", "containers[].livenessProbe.tcpSocket.**", "containers[].startupProbe.tcpSocket.**",
	"containers[].readinessProbe.exec.**", "containers[].livenessProbe.exec.**", "containers[].startupProbe.exec.**",
	"containers[].readinessProbe.initialDelaySeconds", "containers[].livenessProbe.initialDelaySeconds", "containers[].startupProbe.initialDelaySeconds",
	"containers[].readinessProbe.periodSeconds", "containers[].livenessProbe.periodSeconds", "containers[].startupProbe.periodSeconds",
	"containers[].readinessProbe.timeoutSeconds", "containers[].livenessProbe.timeoutSeconds", "containers[].startupProbe.timeoutSeconds",
	"containers[].readinessProbe.successThreshold", "containers[].livenessProbe.successThreshold", "containers[].startupProbe.successThreshold",
	"containers[].readinessProbe.failureThreshold", "containers[].livenessProbe.failureThreshold", "containers[].startupProbe.failureThreshold",
	"containers[].lifecycle.preStop.exec.**", "containers[].lifecycle.preStop.sleep.**",
	"containers[].securityContext.runAsUser", "containers[].securityContext.runAsGroup",
	"containers[].securityContext.runAsNonRoot", "containers[].securityContext.privileged",
	"containers[].securityContext.readOnlyRootFilesystem", "containers[].securityContext.allowPrivilegeEscalation",
	"containers[].securityContext.capabilities.**",
	"containers[].terminationMessagePolicy",
}

// WithoutEffect lists the fields that are accepted and change nothing here. Each either belongs to somebody else
// (the scheduler, the API server) or bounds a resource that a test does not measure.
var WithoutEffect = []string{
	// The scheduler's.
	"affinity.**", "tolerations[].**", "topologySpreadConstraints[].**", "schedulerName",
	"priority", "priorityClassName", "preemptionPolicy",
	// There is no registry: the images file says what an image is.
	"containers[].imagePullPolicy", "imagePullSecrets[].**",
	// Scheduling counts requests; limits are not enforced (no cgroup is made).
	"containers[].resources.**",
	// Variables for each Service of the namespace are never set; those of the API server always are.
	"enableServiceLinks",
	// No program of the tests writes such a file; with FallbackToLogsOnError its last words count, as on a real node.
	"containers[].terminationMessagePath",
	// No filter of system calls is installed; Localhost profiles are refused.
	"securityContext.seccompProfile.**", "containers[].securityContext.seccompProfile.**",
	// Files of volumes get the group on every start.
	"securityContext.fsGroupChangePolicy",
}
