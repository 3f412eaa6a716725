/** A pod for a moment on each node that is asked: it has the image, starts it, says its version and ends. */
import { createHash } from 'node:crypto'
import { refOf } from '../../../kubeapi/kube/write/object-ref.ts'
import { KubeError } from '../../../kubeapi/kube/kube-error.ts'
import { formatImageName } from '../../../install/image-name.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import type { ImageQuestion } from './plan-image-check.ts'

export interface AskNodesInit {
  readonly clock: Clock
  readonly signal: AbortSignal
}

export interface NodeAnswers {
  /** Nodes that cannot, and why. */
  readonly refused: ReadonlyMap<string, string>
  /** What could not be found out, as sentences. */
  readonly silent: readonly string[]
}

/** Nodes fetch some hundred megabytes in this time, or are slow: then they go on by themselves. */
const PATIENCE_MS = 90_000
const LOOK_EVERY_MS = 500
const LABEL = 'sealane.io/image-check'

/** The pods are gone at the end, however it ends. */
export async function askNodes(
  admin: Pick<ClusterAdmin, 'get' | 'list' | 'create' | 'remove'>,
  { question, nodes }: { readonly question: ImageQuestion; readonly nodes: readonly string[] },
  { clock, signal }: AskNodesInit,
): Promise<NodeAnswers> {
  const run = createHash('sha256').update(`${clock.now()}`).digest('hex').slice(0, 10)
  const own = { apiVersion: 'v1', kind: 'Namespace', name: question.namespace }
  const namespace = (await admin.get(own, signal)) === undefined ? 'default' : question.namespace
  const pods = nodes.map((node, i) =>
    probePod({ question, node, namespace, name: `sealane-image-check-${run}-${i}`, run }),
  )
  try {
    for (const pod of pods) await admin.create(pod, { dryRun: false }, signal)
    return await watch(admin, { namespace, run, nodes }, { clock, signal })
  } catch (error) {
    // Quotas, admission: a cluster that does not take such a pod says nothing about the image.
    if (!(error instanceof KubeError) || error.passing) throw error
    return { refused: new Map(), silent: [`not asked of the nodes: ${error.message}`] }
  } finally {
    // Also after an interrupt.
    const last = AbortSignal.timeout(10_000)
    for (const pod of pods) await admin.remove(refOf(pod), last).catch(() => false)
  }
}

interface PodStatus {
  readonly phase?: string
  /** Of the pod as a whole: what the kubelet did to it. */
  readonly reason?: string
  readonly message?: string
  readonly containerStatuses?: readonly {
    readonly state?: {
      readonly waiting?: { readonly reason?: string; readonly message?: string }
      readonly terminated?: { readonly reason?: string; readonly message?: string; readonly exitCode?: number }
    }
  }[]
}

async function watch(
  admin: Pick<ClusterAdmin, 'list'>,
  { namespace, run, nodes }: { readonly namespace: string; readonly run: string; readonly nodes: readonly string[] },
  { clock, signal }: AskNodesInit,
): Promise<NodeAnswers> {
  const end = clock.monotonic() + PATIENCE_MS
  const refused = new Map<string, string>()
  const open = new Set(nodes)
  const said = new Map<string, string>()
  const silent: string[] = []
  for (;;) {
    signal.throwIfAborted()
    for (const pod of await admin.list('v1', 'Pod', { namespace, labelSelector: `${LABEL}=${run}` }, signal)) {
      const node = (pod['spec'] as { readonly nodeName?: string }).nodeName ?? ''
      const answer = answerOf(pod['status'] ?? {}, said.get(node))
      if (answer === undefined) continue
      if (answer.state === 'trying') said.set(node, answer.why)
      else {
        open.delete(node)
        if (answer.state === 'refused') refused.set(node, answer.why)
        if (answer.state === 'silent') silent.push(`node ${node} does not say: it took no pod to ask it: ${answer.why}`)
      }
    }
    if (open.size === 0) return { refused, silent }
    if (clock.monotonic() >= end) {
      return {
        refused,
        silent: [
          ...silent,
          ...[...open].map((node) => `node ${node} does not say: ${said.get(node) ?? 'it is not done yet'}`),
        ],
      }
    }
    await clock.sleep(LOOK_EVERY_MS, signal)
  }
}

type Answer =
  | { readonly state: 'has' }
  | { readonly state: 'trying'; readonly why: string }
  | { readonly state: 'refused'; readonly why: string }
  | { readonly state: 'silent'; readonly why: string }

/** `before`: what the node said when it tried last, which says more than that it waits to try again. */
function answerOf(
  { phase, reason, message, containerStatuses = [] }: PodStatus,
  before: string | undefined,
): Answer | undefined {
  if (phase === 'Succeeded') return { state: 'has' }
  const [{ state = {} } = {}] = containerStatuses
  const { terminated, waiting } = state
  if (phase === 'Failed') {
    // No scheduler was asked: a node that is full, or ends, rejects the pod, which says nothing about the image.
    if (reason !== undefined || terminated === undefined)
      return { state: 'silent', why: message ?? reason ?? 'no reason' }
    const code = terminated.exitCode === undefined ? '' : ` (code ${terminated.exitCode})`
    return { state: 'refused', why: terminated.message ?? message ?? `it does not run there${code}` }
  }
  const why = waiting?.message ?? waiting?.reason ?? ''
  if (waiting?.reason === 'ErrImagePull') return { state: 'trying', why }
  const lost = [
    'ImagePullBackOff',
    'ErrImageNeverPull',
    'InvalidImageName',
    'CreateContainerError',
    'RunContainerError',
  ]
  return lost.includes(waiting?.reason ?? '') ? { state: 'refused', why: before ?? why } : undefined
}

const NOBODY = 65_532

/** What the strictest pod security level wants, on whatever node. */
function probePod({
  question: { image, pullSecrets, marks },
  node,
  namespace,
  name,
  run,
}: {
  readonly question: ImageQuestion
  readonly node: string
  readonly namespace: string
  readonly name: string
  readonly run: string
}): ManifestObject {
  const container = {
    name: 'version',
    image: formatImageName(image),
    imagePullPolicy: image.pullPolicy,
    args: ['version'],
    resources: { requests: { cpu: '10m', memory: '64Mi' }, limits: { memory: '256Mi' } },
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
    terminationMessagePolicy: 'FallbackToLogsOnError',
  }
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace, labels: { ...marks?.labels, [LABEL]: run }, annotations: marks?.annotations ?? {} },
    spec: {
      nodeName: node,
      restartPolicy: 'Never',
      activeDeadlineSeconds: 300,
      terminationGracePeriodSeconds: 0,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      imagePullSecrets: pullSecrets.map((secret) => ({ name: secret })),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: NOBODY,
        runAsGroup: NOBODY,
        seccompProfile: { type: 'RuntimeDefault' },
      },
      tolerations: [{ operator: 'Exists' }],
      containers: [container],
    },
  }
}
