/** How far a join has come, each as what is still missing. */
import { type PartName, objectName } from '../../install/names.ts'
import { MEMBERSHIP_NAME, type Cluster, type Gateway } from '../../model/objects.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type SecretAccess, joinProblem, secretIdentity } from '../secret-identity.ts'
import type { ClusterAdmin } from './admin.ts'
import { joinedOthers, laneStates } from './lane-states.ts'
import type { GatewayWish } from './plan-join.ts'
import { partTrouble } from './pod-trouble.ts'
import { isRolledOut, rolloutOf } from './rollout.ts'
import type { Missing } from './wait-until.ts'

const OURS = 'sealane.io/v1alpha1'

export interface JoinPlace {
  readonly secret: SecretAccess
  /** Text of the site file that the agent has, or will have. */
  readonly settings: string
  readonly namespace: string
}

/** Throws UserError when the broker, or the token itself, says no. */
export async function joinProgress(
  admin: Pick<ClusterAdmin, 'list'>,
  { secret, settings, namespace }: JoinPlace,
  signal: AbortSignal,
): Promise<Missing | undefined> {
  if ((await secretIdentity(secret).read()) !== undefined) return undefined
  const problem = joinProblem(await secret.read(), settings)
  if (problem?.final === true) {
    throw new UserError(problem.text, {
      hint: 'mend that, or make a new token (sealane token create), and run this again',
    })
  }
  const why = problem?.text ?? (await partTrouble(admin, 'agent', namespace, signal))
  return { what: 'agent', why }
}

const PARTS: readonly PartName[] = ['broker', 'agent', 'gateway', 'routeagent', 'dns']

/** Names the parts that are missing, and the trouble of the first of them. */
export async function rolloutProgress(
  admin: Pick<ClusterAdmin, 'list'>,
  namespace: string,
  signal: AbortSignal,
): Promise<Missing | undefined> {
  const missing: { readonly part: PartName; readonly count: string }[] = []
  for (const kind of ['StatefulSet', 'Deployment', 'DaemonSet']) {
    for (const object of await admin.list('apps/v1', kind, { namespace }, signal)) {
      const rollout = rolloutOf(object)
      const part = PARTS.find((one) => objectName(one) === object.metadata.name)
      if (part === undefined || isRolledOut(rollout)) continue
      missing.push({ part, count: rollout.wanted === undefined ? '' : `${rollout.ready} of ${rollout.wanted} ready` })
    }
  }
  const [first] = missing.sort((a, b) => PARTS.indexOf(a.part) - PARTS.indexOf(b.part))
  if (first === undefined) return undefined
  const trouble = await partTrouble(admin, first.part, namespace, signal)
  return { what: missing.map(({ part }) => part).join(', '), why: trouble ?? `${first.part} ${first.count}`.trim() }
}

export interface LanesProgress {
  /** Ids of the other clusters with a lane that is up; nobody where there is no other member yet. */
  readonly reached: readonly string[]
  readonly missing: Missing | undefined
}

export async function lanesProgress(
  admin: Pick<ClusterAdmin, 'list' | 'get'>,
  gateways: readonly GatewayWish[],
  signal: AbortSignal,
): Promise<LanesProgress> {
  const clusters = (await admin.list(OURS, 'Cluster', {}, signal)) as unknown as Cluster[]
  const membership = await admin.get({ apiVersion: OURS, kind: 'Membership', name: MEMBERSHIP_NAME }, signal)
  const own = (membership?.['spec'] as { clusterId?: string } | undefined)?.clusterId
  const objects = (await admin.list(OURS, 'Gateway', {}, signal)) as unknown as Gateway[]
  const late = gateways.filter(({ node }) => !objects.some(({ metadata }) => metadata.name === node))
  if (late.length > 0) {
    return { reached: [], missing: { what: `from the gateway on ${late.map(({ node }) => node).join(', ')}` } }
  }
  const states = laneStates(joinedOthers(clusters, own), objects)
  const reached = states.filter(({ state }) => state === 'up').map(({ cluster }) => cluster)
  const missing = states.filter(({ state }) => state !== 'up')
  const [first] = missing
  if (first === undefined) return { reached, missing: undefined }
  const why = first.message === '' ? first.state : `${first.state}: ${first.message}`
  return {
    reached,
    missing: { what: `to ${missing.map(({ cluster }) => cluster).join(', ')}`, why: `${first.cluster} ${why}` },
  }
}
