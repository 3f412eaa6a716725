/** Moves the traffic away from a gateway of a cluster or a site, and moves it back. */
import { CONDITION_DRAINED, type Gateway, findCondition } from '../../model/model.ts'
import { LABEL_DRAIN, LABEL_GATEWAY } from '../../model/lanes/lanes.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ManifestObject } from '../../install/values/values.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { type Missing, waitUntil } from '../installation/installation.ts'

type Admin = Pick<ClusterAdmin, 'get' | 'list' | 'merge'>

export interface DrainInit {
  /** Marks the only gateway too, which then continues to carry traffic. */
  readonly force: boolean
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  /** Awaited before the label is set, which is not done if the Node has it. If it rejects, the label is not set. */
  readonly beforeMark?: () => Promise<void>
  /** How to add a gateway, for messages. By default as in a Kubernetes cluster. */
  readonly addGateway?: string
  /** The flags that select the site, for the commands that messages recommend: ` --site site.yaml`. */
  readonly flags?: string
}

/**
 * Labels the Node, and waits until its gateway carries no traffic or another node has taken over its slot. Returns the
 * final state as text. Throws UserError if the Node does not exist or is no gateway, if no other gateway could carry
 * the traffic, and after the time limit.
 */
export async function drainGateway(admin: Admin, name: string, init: DrainInit): Promise<string> {
  const { signal, addGateway = `kubectl label node OTHER ${LABEL_GATEWAY}=true`, flags = '' } = init
  const node = await gatewayNode(admin, name, signal)
  const isMarked = node.metadata.labels?.[LABEL_DRAIN] !== undefined
  if (!isMarked && !init.force && (await otherGateways(admin, name, signal)).length === 0) {
    throw new UserError(`Node ${name} is the only active gateway: without it the cluster is cut off`, {
      reason: 'OneGatewayOnly',
      hint: `first add a gateway: ${addGateway}; or use --force, which marks it while it still carries traffic`,
    })
  }
  if (!isMarked) {
    await init.beforeMark?.()
    await mark(admin, name, 'true', init)
  }
  await waitUntil(() => stillCarries(admin, name, signal), {
    ...init,
    what: 'the gateway to be drained',
    hint: `draining continues; to cancel it: sealane gateway undrain ${name}${flags}`,
  })
  const left = (await gatewayObject(admin, name, signal)) === undefined
  return left ? `${name} is no longer a gateway: another node has taken over` : `${name} carries no traffic`
}

/** Throws UserError if the Node does not exist or is no gateway. */
export async function undrainGateway(
  admin: Admin,
  name: string,
  init: Pick<DrainInit, 'signal' | 'say'>,
): Promise<string> {
  const node = await gatewayNode(admin, name, init.signal)
  if (node.metadata.labels?.[LABEL_DRAIN] === undefined) return `${name} is not drained`
  await mark(admin, name, null, init)
  return `${name} can carry traffic again, or is on standby while other nodes serve all lanes`
}

export async function gatewayNode(
  admin: Pick<Admin, 'get'>,
  name: string,
  signal: AbortSignal,
): Promise<ManifestObject> {
  const node = await admin.get({ apiVersion: 'v1', kind: 'Node', name }, signal)
  if (node === undefined) throw new UserError(`Node ${name}: this cluster has no such Node`)
  if (node.metadata.labels?.[LABEL_GATEWAY] === undefined) {
    throw new UserError(`Node ${name} is not a gateway: it has no label ${LABEL_GATEWAY}`)
  }
  return node
}

async function mark(
  admin: Admin,
  name: string,
  value: 'true' | null,
  { signal, say }: Pick<DrainInit, 'signal' | 'say'>,
): Promise<void> {
  await admin.merge(
    { apiVersion: 'v1', kind: 'Node', name },
    { metadata: { labels: { [LABEL_DRAIN]: value } } },
    signal,
  )
  say(`  changed   Node ${name}  (${LABEL_DRAIN}${value === null ? '-' : `=${value}`})\n`)
}

const GATEWAYS = 'sealane.io/v1alpha1'

async function gatewayObject(admin: Admin, name: string, signal: AbortSignal): Promise<Gateway | undefined> {
  return (await admin.get({ apiVersion: GATEWAYS, kind: 'Gateway', name }, signal)) as unknown as Gateway | undefined
}

/** The names of the other active gateways that are not drained themselves. */
async function otherGateways(admin: Admin, name: string, signal: AbortSignal): Promise<readonly string[]> {
  const gateways = (await admin.list(GATEWAYS, 'Gateway', {}, signal)) as unknown as readonly Gateway[]
  const isDrained = ({ status }: Gateway): boolean => findCondition(status?.conditions, CONDITION_DRAINED) !== undefined
  return gateways.filter((one) => one.metadata.name !== name && !isDrained(one)).map(({ metadata }) => metadata.name)
}

async function stillCarries(admin: Admin, name: string, signal: AbortSignal): Promise<Missing | undefined> {
  const gateway = await gatewayObject(admin, name, signal)
  if (gateway === undefined) return undefined
  const drained = findCondition(gateway.status?.conditions, CONDITION_DRAINED)
  if (drained?.status === 'True') return undefined
  return { what: `traffic on ${name}`, why: drained?.message }
}
