/** Spot and preemptible machines, by the labels and taints that providers and autoscalers give their Nodes. Pure. */
import type { NodeSigns } from '../model.ts'

/** Labels of machines that their provider may take away, with the values that say so, in lower case. */
const SPOT_LABELS: Readonly<Record<string, readonly string[]>> = {
  'aws.amazon.com/spot': ['true'],
  'cluster.x-k8s.io/interruptible': ['', 'true'],
  'cloud.google.com/gke-preemptible': ['true'],
  'cloud.google.com/gke-provisioning': ['preemptible', 'spot'],
  'cloud.google.com/gke-spot': ['true'],
  'eks.amazonaws.com/capacitytype': ['spot'],
  'karpenter.sh/capacity-type': ['spot'],
  'kops.k8s.io/instance-lifecycle': ['spot'],
  'kubernetes.azure.com/scalesetpriority': ['low', 'spot'],
  lifecycle: ['ec2spot', 'spot'],
  'machine.openshift.io/interruptible-instance': ['', 'true'],
  'node-lifecycle': ['ec2spot', 'spot'],
  'node.kubernetes.io/lifecycle': ['ec2spot', 'preemptible', 'spot'],
  'node.kubernetes.io/capacity-type': ['preemptible', 'spot'],
  'node-role.kubernetes.io/spot': ['', 'true'],
  'node-role.kubernetes.io/spot-worker': ['', 'true'],
  'oci.oraclecloud.com/oke-is-preemptible': ['true'],
  'scheduling.cast.ai/spot': ['true'],
  'spot.io/node-lifecycle': ['spot'],
  spotinstance: ['true'],
  'spotinst.io/node-lifecycle': ['spot'],
  'yandex.cloud/preemptible': ['true'],
}
/** Other providers give such a label a key of their own: alibabacloud.com/spot-instance, node.example.org/preemptible. */
const SPOT_KEY = /^[^/]*\/([a-z0-9]+[-.])*(spot|preemptible)([-.](instance|node|vm))?$/
/** What shows that its provider or an autoscaler may take the machine away at short notice. */
export function transientSign({ labels, taints }: NodeSigns): string | undefined {
  const isSpot = (key: string, value: string): boolean => {
    const [name, said] = [key.toLowerCase(), value.toLowerCase()]
    const values = Object.hasOwn(SPOT_LABELS, name) ? SPOT_LABELS[name] : undefined
    return values === undefined ? SPOT_KEY.test(name) && said === 'true' : values.includes(said)
  }
  const label = Object.entries(labels).find(([key, value]) => isSpot(key, value))
  if (label !== undefined) return `label ${label[0]}${label[1] === '' ? '' : `=${label[1]}`}`
  const taint = taints.find(
    ({ key, value }) => key === CANDIDATE_TAINT || isSpot(key, value) || (PRESENT_TAINTS.has(key) && value !== 'false'),
  )
  return taint === undefined ? undefined : `taint ${taint.key}`
}

/** The cluster autoscaler regards the machine as unneeded, and may still change its mind. */
const CANDIDATE_TAINT = 'DeletionCandidateOfClusterAutoscaler'
/** Taints that say it with any value. */
const PRESENT_TAINTS: ReadonlySet<string> = new Set([
  'oci.oraclecloud.com/oke-is-preemptible',
  'cloud.google.com/gke-preemptible',
  'cloud.google.com/gke-spot',
])
