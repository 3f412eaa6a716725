/** Checks whether the nodes of a cluster can run the image, before an installation changes anything. */
import { createHash } from 'node:crypto'
import {
  type InstallValues,
  LEFT_ALONE,
  type ManifestObject,
  REQUIRED_SCC,
  formatImageName,
} from '../../install/values/values.ts'
import { KubeError, refOf } from '../../kubeapi/kube/kube.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type ClusterAdmin, listIfAllowed, unlessForbidden } from '../context/context.ts'
import { type ImageQuestion, nodeList, planImageCheck } from './plan-image-check.ts'

// Starts a short-lived pod on each node in question: it pulls the image, starts it, prints its version and ends.

interface AskNodesInit {
  readonly clock: Clock
  readonly signal: AbortSignal
}

interface NodeAnswers {
  /** The nodes that cannot run the image, with the reason. */
  readonly refused: ReadonlyMap<string, string>
  /** What could not be determined, as sentences. */
  readonly silent: readonly string[]
}

/** The time for nodes to pull some hundred megabytes. On slower nodes the pull continues after the check. */
const PATIENCE_MS = 90_000
const LOOK_EVERY_MS = 500
const LABEL = 'sealane.io/image-check'

/** Removes the pods at the end, also after a failure. */
async function askNodes(
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
    // A cluster that refuses such a pod because of quotas or admission rules says nothing about the image.
    if (!(error instanceof KubeError) || error.passing) throw error
    return { refused: new Map(), silent: [`not checked on the nodes: ${error.message}`] }
  } finally {
    // A signal of its own, so that the pods are also removed after an interrupt.
    const last = AbortSignal.timeout(10_000)
    for (const pod of pods) await admin.remove(refOf(pod), last).catch(() => false)
  }
}

interface PodStatus {
  readonly phase?: string
  /** The kubelet's reason for the phase of the whole pod. */
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
        if (answer.state === 'silent')
          silent.push(`node ${node} was not checked: it did not accept the pod for the check: ${answer.why}`)
      }
    }
    if (open.size === 0) return { refused, silent }
    if (clock.monotonic() >= end) {
      return {
        refused,
        silent: [
          ...silent,
          ...[...open].map(
            (node) => `node ${node} was not checked in time: ${said.get(node) ?? 'the check is not complete'}`,
          ),
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

/**
 * `before` is the node's message at its last attempt, which says more than the message that it waits for the next one.
 */
function answerOf(
  { phase, reason, message, containerStatuses = [] }: PodStatus,
  before: string | undefined,
): Answer | undefined {
  if (phase === 'Succeeded') return { state: 'has' }
  const [{ state = {} } = {}] = containerStatuses
  const { terminated, waiting } = state
  if (phase === 'Failed') {
    // The pod names its node, so no scheduler checks it. A node that is full or shuts down rejects the pod, which says
    // nothing about the image.
    if (reason !== undefined || terminated === undefined)
      return { state: 'silent', why: message ?? reason ?? 'no reason' }
    const code = terminated.exitCode === undefined ? '' : ` (code ${terminated.exitCode})`
    return { state: 'refused', why: terminated.message ?? message ?? `it does not run on this node${code}` }
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

/**
 * A pod that satisfies the strictest Pod Security level and tolerates every taint. A service mesh leaves it alone: with
 * a proxy beside its container, it would never end. In OpenShift it names `restricted-v2`, which every user may use, and
 * which chooses the user id.
 */
export function probePod({
  question: { image, pullSecrets, marks, isOpenShift = false },
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
    metadata: {
      name,
      namespace,
      labels: { ...marks?.labels, ...LEFT_ALONE.labels, [LABEL]: run },
      annotations: {
        ...marks?.annotations,
        ...LEFT_ALONE.annotations,
        ...(isOpenShift ? { [REQUIRED_SCC]: 'restricted-v2' } : {}),
      },
    },
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
        ...(isOpenShift ? {} : { runAsUser: NOBODY, runAsGroup: NOBODY }),
        seccompProfile: { type: 'RuntimeDefault' },
      },
      tolerations: [{ operator: 'Exists' }],
      containers: [container],
    },
  }
}

export interface ImageCheckInit {
  /** Creates no pods. */
  readonly dryRun: boolean
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

export function imageQuestion(values: InstallValues, namespace: string, on: ImageQuestion['on']): ImageQuestion {
  const { objects, pods } = values
  const marks = {
    labels: { ...objects.labels, ...pods.labels },
    annotations: { ...objects.annotations, ...pods.annotations },
  }
  const pullSecrets = values.imagePullSecrets.map(({ name }) => name)
  return { image: values.image, pullSecrets, namespace, on, marks, isOpenShift: values.platform.openshift }
}

/** Throws UserError, which names the nodes that cannot run the image. Nothing of the installation is changed then. */
export async function requireImage(admin: ClusterAdmin, question: ImageQuestion, init: ImageCheckInit): Promise<void> {
  const problems = await imageProblems(admin, question, init)
  if (problems.length === 0) return
  throw new UserError(`${admin.title}: ${problems.join('\n')}`, {
    hint:
      `use --image ${imageExample(question)}, or continue with --force; nothing was changed\n` +
      'how to build, push and copy the image: docs/operations.md',
  })
}

/** The problems that were found, one sentence each. Empty if there are none. Leaves nothing in the cluster. */
export async function imageProblems(
  admin: ClusterAdmin,
  question: ImageQuestion,
  init: ImageCheckInit,
): Promise<readonly string[]> {
  const { signal, say, dryRun } = init
  const plan = planImageCheck(question, {
    nodes: await listIfAllowed(admin, 'v1', 'Node', signal),
    pods: await listIfAllowed(admin, 'v1', 'Pod', signal, { labelSelector: OURS }),
    secrets: await presentSecrets(admin, question, signal),
    namespaceThere: await namespaceThere(admin, question, signal),
  })
  for (const note of plan.notes) say(`  image: ${note}\n`)
  if (dryRun || plan.probe.length === 0 || plan.problems.length > 0) return plan.problems
  say(`checking ${nodeList(plan.probe)} for image ${formatImageName(question.image)}\n`)
  const { refused, silent } = await askNodes(admin, { question, nodes: plan.probe }, init)
  for (const text of silent) say(`  image: ${text}\n`)
  return [...refused].map(
    ([node, why]) => `no image: node ${node} cannot get ${formatImageName(question.image)}: ${why}`,
  )
}

/** An image name in a registry of the user, as an example. */
export function imageExample({ image }: ImageQuestion): string {
  return `REGISTRY/sealane:${image.tag}`
}

const OURS = 'app.kubernetes.io/name=sealane'

function namespaceThere(
  admin: Pick<ClusterAdmin, 'get'>,
  { namespace }: ImageQuestion,
  signal: AbortSignal,
): Promise<boolean | undefined> {
  const own = { apiVersion: 'v1', kind: 'Namespace', name: namespace }
  return unlessForbidden(async () => (await admin.get(own, signal)) !== undefined)
}

async function presentSecrets(
  admin: Pick<ClusterAdmin, 'get'>,
  { pullSecrets, namespace }: ImageQuestion,
  signal: AbortSignal,
): Promise<ReadonlySet<string> | undefined> {
  const found = await unlessForbidden(async () => {
    const secrets: (ManifestObject | undefined)[] = []
    for (const name of pullSecrets) {
      secrets.push(await admin.get({ apiVersion: 'v1', kind: 'Secret', namespace, name }, signal))
    }
    return secrets
  })
  return found === undefined ? undefined : new Set(found.flatMap((secret) => secret?.metadata.name ?? []))
}
