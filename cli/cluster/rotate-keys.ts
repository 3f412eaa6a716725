/** Makes the gateways of a cluster or a site generate new keys. */
import {
  CONDITION_KEYS_ROTATED,
  type Endpoint,
  type Gateway,
  MEMBERSHIP_NAME,
  type Membership,
  findCondition,
} from '../../model/model.ts'
import { ANNOTATION_ROTATE_KEYS } from '../../model/lanes/lanes.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { type Missing, waitUntil } from '../installation/installation.ts'
import { gatewayNode } from './drain-gateway.ts'

type Admin = Pick<ClusterAdmin, 'get' | 'list' | 'merge'>

export interface RotateInit {
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

const GROUP = 'sealane.io/v1alpha1'

/**
 * Requests new keys from the gateway of this Node, or from all active gateways, and waits until each has a new key.
 * Returns the final state as text. Throws UserError if there is no such gateway, and after the time limit, when the
 * rotation still continues.
 */
export async function rotateKeys(admin: Admin, name: string | undefined, init: RotateInit): Promise<string> {
  const { signal } = init
  if (name !== undefined) await gatewayNode(admin, name, signal)
  const gateways = await activeGateways(admin, signal)
  const asked = gateways.filter(({ metadata }) => name === undefined || metadata.name === name)
  if (asked.length === 0) throw new UserError(name === undefined ? NONE : `Node ${name} serves no lane now: ${STANDBY}`)
  const before = await keysOf(admin, asked, signal)
  for (const { metadata } of asked) await ask(admin, metadata.name, init)
  await waitUntil(() => oldKeys(admin, asked, before, signal), {
    ...init,
    what: 'new keys',
    hint: `the rotation continues; condition ${CONDITION_KEYS_ROTATED} of each Gateway shows its progress`,
  })
  const names = asked.map(({ metadata }) => metadata.name).sort()
  return `${names.join(', ')}: keys rotated`
}

const STANDBY = 'a standby gateway has no key that other clusters use'
const NONE = 'this cluster has no active gateway'

async function activeGateways(admin: Admin, signal: AbortSignal): Promise<readonly Gateway[]> {
  const all = (await admin.list(GROUP, 'Gateway', {}, signal)) as unknown as readonly Gateway[]
  return all.filter(({ status }) => (status?.lanes ?? []).length > 0)
}

async function ask(admin: Admin, name: string, { clock, signal, say }: RotateInit): Promise<void> {
  const request = new Date(clock.now()).toISOString()
  const annotations = { [ANNOTATION_ROTATE_KEYS]: request }
  await admin.merge({ apiVersion: 'v1', kind: 'Node', name }, { metadata: { annotations } }, signal)
  say(`  changed   Node ${name}  (${ANNOTATION_ROTATE_KEYS}=${request})\n`)
}

/** The Endpoints of these gateways, by Node name. */
async function keysOf(
  admin: Admin,
  gateways: readonly Gateway[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Endpoint['spec']>> {
  const own = await ownCluster(admin, signal)
  const endpoints = (await admin.list(GROUP, 'Endpoint', {}, signal)) as unknown as readonly Endpoint[]
  const nodes = new Set(gateways.map(({ metadata }) => metadata.name))
  const ours = endpoints.filter(({ spec }) => spec.cluster === own && nodes.has(spec.node))
  return new Map(ours.map(({ spec }) => [spec.node, spec]))
}

/** Filters by cluster, because Nodes of two clusters may have the same name. */
async function ownCluster(admin: Admin, signal: AbortSignal): Promise<string | undefined> {
  const membership = await admin.get({ apiVersion: GROUP, kind: 'Membership', name: MEMBERSHIP_NAME }, signal)
  return (membership as unknown as Membership | undefined)?.spec.clusterId
}

async function oldKeys(
  admin: Admin,
  asked: readonly Gateway[],
  before: ReadonlyMap<string, Endpoint['spec']>,
  signal: AbortSignal,
): Promise<Missing | undefined> {
  const now = await keysOf(admin, asked, signal)
  const isNew = (name: string): boolean => {
    const spec = now.get(name)
    return spec !== undefined && spec.publicKey !== before.get(name)?.publicKey && spec.nextPublicKey === undefined
  }
  const rest = asked.map(({ metadata }) => metadata.name).filter((name) => !isNew(name))
  if (rest.length === 0) return undefined
  const gateways = await activeGateways(admin, signal)
  const why = gateways
    .filter(({ metadata }) => rest.includes(metadata.name))
    .flatMap(({ status, metadata }) => {
      const found = findCondition(status?.conditions, CONDITION_KEYS_ROTATED)
      return found?.status === 'False' ? `${metadata.name}: ${found.reason}: ${found.message}` : []
    })
  return { what: `new keys of ${rest.join(', ')}`, why: why.length === 0 ? undefined : why.join('; ') }
}
