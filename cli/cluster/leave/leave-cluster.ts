/**
 * `sealane leave --context`: the agent reports the leave to the broker and removes what it mirrored, every node removes
 * Sealane from its kernel, and then the installation is deleted. Broken parts are named. `--force` repairs those that
 * can be repaired and skips the rest.
 */
import { planMember } from '../../../install/install.ts'
import { DEFAULT_VALUES, type InstallValues, objectName } from '../../../install/values/values.ts'
import { type ObjectRef, refOf, titleOf } from '../../../kubeapi/kube/kube.ts'
import {
  type ClusterId,
  LEAVE_REQUESTED_ANNOTATION,
  LEAVE_UNREPORTED_ANNOTATION,
  MEMBERSHIP_NAME,
  SYSTEM_NAMESPACE,
} from '../../../model/model.ts'
import { parseJoinToken } from '../../../protocol/identity/identity.ts'
import {
  LEAVE_TIMEOUT_MS,
  type SecretAccess,
  TOKEN_PART,
  joinProblem,
  secretIdentity,
} from '../../../protocol/membership/membership.ts'
import { UserError, messageOf, sealaneVersion } from '../../../runtime/runtime.ts'
import { createLogger } from '../../../runtime/logging/logging.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { type Discovery, type Lookable, discover, readSnapshot, snapshotReader } from '../../discovery/discovery.ts'
import {
  type Missing,
  checkRights,
  imageValues,
  isRolledOut,
  partTrouble,
  rolloutOf,
} from '../../installation/installation.ts'
import { identitySecret } from '../identity-secret.ts'
import { unwireClusterDns, unwiringRights } from '../wire-cluster-dns.ts'
import { type LeaveClusterInit, leaveRights, removeInstallation, step } from './remove-installation.ts'

export const MEMBERSHIP: ObjectRef = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME }

/** Returns the id that the cluster had. Undefined if it was not a member. Throws UserError. */
export async function leaveCluster(
  admin: ClusterAdmin,
  discovery: Discovery,
  init: LeaveClusterInit,
  { absentIsFine = false }: { readonly absentIsFine?: boolean } = {},
): Promise<string | undefined> {
  const { signal, say } = init
  const membership = await admin.get(MEMBERSHIP, signal)
  if (membership === undefined && discovery.earlier.state === 'none' && !init.force) {
    if (absentIsFine) return undefined
    throw new UserError(`${admin.title}: Sealane is not installed`)
  }
  const rights = [...(await leaveRights(admin, discovery, init)), ...(await unwiringRights(admin, discovery, init))]
  await checkRights(admin, rights, signal)
  if (membership === undefined) {
    await takeBackJoin(identitySecret(admin, SYSTEM_NAMESPACE, signal), init)
    await reportForgotten(admin, init)
  } else await endMembership(admin, init)
  const dns = await unwireClusterDns(admin, discovery, { ...init, dryRun: false })
  for (const line of dns.left) say(`cluster DNS: ${line}\n`)
  await removeInstallation(admin, discovery, init)
  return (membership?.['spec'] as { clusterId?: string } | undefined)?.clusterId
}

/**
 * Withdraws a join that waits for an operator's approval. If the broker is unreachable from here, the request ends with
 * its token.
 */
async function takeBackJoin(secret: SecretAccess, { clock, signal, say }: LeaveClusterInit): Promise<void> {
  const content = await secret.read()
  const token = content?.data[TOKEN_PART]
  if (content === undefined || token === undefined) return
  if (joinProblem(content, '')?.reason !== 'JoinAwaitsApproval') return
  try {
    const key = await secretIdentity(secret).key()
    const ask = { token: parseJoinToken(token, 0), key, ...WITHDRAWN }
    const { withdrawJoin } = await import('../../../protocol/membership/join.ts')
    await withdrawJoin(ask, { clock, logger: createLogger('cli', 'error') }, signal)
    say('the join that waited for approval was withdrawn\n')
  } catch (error) {
    signal.throwIfAborted()
    say(
      `the join that waits for approval could not be withdrawn (${messageOf(error)}): it ends when its token expires\n`,
    )
  }
}

/** Only token and key identify the request; the other fields are placeholders. */
const WITHDRAWN = {
  cluster: 'withdrawn' as ClusterId,
  facts: { podCIDRs: [], serviceCIDRs: [], labels: {}, version: sealaneVersion() },
}

/**
 * Without the Membership the agent does not report the leave, so the broker keeps this cluster as a member. Prints how
 * to evict it.
 */
async function reportForgotten(admin: ClusterAdmin, { signal, say }: LeaveClusterInit): Promise<void> {
  const identity = await secretIdentity(identitySecret(admin, SYSTEM_NAMESPACE, signal))
    .read()
    .catch(() => undefined)
  if (identity === undefined) return
  say(
    `without the Membership the leave cannot be reported to the broker: ${identity.cluster} stays a member until it is evicted; ` +
      `on the broker, run: sealane cluster evict ${identity.cluster}\n`,
  )
}

async function endMembership(admin: ClusterAdmin, init: LeaveClusterInit): Promise<void> {
  const { signal, say } = init
  await reportFirst(admin, init)
  const nodes = (): Promise<Missing | undefined> => nodesLeft(admin, signal)
  const what = 'every node to remove Sealane from its kernel'
  let clean = await step(init, what, nodes)
  if (!clean) {
    // The parts that cannot clean up are applied again, with an image that runs elsewhere in this cluster.
    await mendNodeParts(admin, init)
    clean = await step(init, what, nodes)
  }
  const left = clean ? undefined : await nodesLeft(admin, signal)
  if (left === undefined) say('left the clusterset\n')
  else say(`Sealane stays in the kernel until the node is restarted: ${left.what}\n`)
}

/**
 * Reports the leave to the broker before anything is removed, except with --force. If the report does not reach the
 * broker in time, everything stays as it was.
 */
async function reportFirst(admin: ClusterAdmin, init: LeaveClusterInit): Promise<void> {
  const { signal, force } = init
  const wait = (): Promise<boolean> =>
    step(init, 'the leave to be reported to the broker', () => unreported(admin, signal), UNHEARD)
  if (force || (await phaseOf(admin, signal)) === 'leaving') {
    // Without --force this clears the annotation of an earlier attempt with --force.
    const annotations = { [LEAVE_UNREPORTED_ANNOTATION]: force ? 'true' : null }
    await admin.merge(MEMBERSHIP, { metadata: { annotations }, spec: { phase: 'leaving' } }, signal)
    await wait()
    return
  }
  await requestLeave(admin, 'true', signal)
  try {
    await wait()
  } catch (error) {
    const hasLeft = await takeBackRequest(admin, init)
    if (!hasLeft || signal.aborted) throw error
    await wait()
  }
}

/**
 * Withdraws the request to leave, also after an interrupt. Otherwise the agent would continue and eventually reach the
 * broker. True if the report reached the broker at the last moment, so that the leave cannot be undone.
 */
async function takeBackRequest(admin: ClusterAdmin, { signal, clock, say }: LeaveClusterInit): Promise<boolean> {
  const late = AbortSignal.timeout(UNDER_WAY_MS + 2 * TAKE_BACK_MS)
  try {
    await requestLeave(admin, 'withdrawn', late)
    const hasLeft = async (): Promise<boolean> => (await phaseOf(admin, late)) === 'leaving'
    // A call of the agent to the broker may be in progress. Its result is known after its time limit.
    const end = clock.monotonic() + (signal.aborted ? 0 : UNDER_WAY_MS)
    while (!(await hasLeft()) && clock.monotonic() < end) await clock.sleep(500, late)
    if (await hasLeft()) return true
    if (!signal.aborted) await requestLeave(admin, null, late)
    say(
      'nothing was removed: this cluster is still a member; if the broker did receive the report, sealane status ' +
        'shows MemberLeft within a minute: then leave again\n',
    )
  } catch (failure) {
    say(`the request to leave could not be withdrawn: ${messageOf(failure)}; sealane join withdraws it\n`)
  }
  return false
}

/** The time limit of one call of the agent to the broker, and of its write after that. */
const UNDER_WAY_MS = LEAVE_TIMEOUT_MS + 2000
const UNHEARD =
  'fix that and run this command again, or skip this step with --force; an agent of an earlier release ignores the request: ' +
  'run sealane join first, which upgrades it'

/** The time to withdraw a request, which also a user who interrupts the command waits for. */
const TAKE_BACK_MS = 5000

async function requestLeave(
  admin: ClusterAdmin,
  value: 'true' | 'withdrawn' | null,
  signal: AbortSignal,
): Promise<void> {
  const annotations = { [LEAVE_REQUESTED_ANNOTATION]: value }
  await admin.merge(MEMBERSHIP, { metadata: { annotations } }, signal)
}

async function phaseOf(admin: ClusterAdmin, signal: AbortSignal): Promise<string | undefined> {
  const membership = await admin.get(MEMBERSHIP, signal)
  return (membership?.['spec'] as { phase?: string } | undefined)?.phase
}

/**
 * Only the agent has the identity. It deletes the identity when it has reported the leave to the broker, or when it
 * gives up.
 */
async function unreported(admin: ClusterAdmin, signal: AbortSignal): Promise<Missing | undefined> {
  const secret = identitySecret(admin, SYSTEM_NAMESPACE, signal)
  const isGone = (await secretIdentity(secret).read()) === undefined
  if (isGone && (await phaseOf(admin, signal)) !== 'joined') return undefined
  const trouble = await partTrouble(admin, 'agent', SYSTEM_NAMESPACE, signal)
  return { what: 'agent', why: joinProblem(await secret.read(), '')?.text ?? trouble?.why }
}

/** A node that has cleaned up deletes its own objects. Objects of Nodes that no longer exist are ignored. */
export async function nodesLeft(admin: Pick<ClusterAdmin, 'list'>, signal: AbortSignal): Promise<Missing | undefined> {
  let present: ReadonlySet<string> | undefined
  for (const [kind, part] of [
    ['Gateway', 'gateway'],
    ['RouteAgent', 'routeagent'],
  ] as const) {
    const objects = await admin.list('sealane.io/v1alpha1', kind, {}, signal)
    if (objects.length === 0) continue
    present ??= new Set((await admin.list('v1', 'Node', {}, signal)).map(({ metadata }) => metadata.name))
    const left = objects.filter(({ metadata }) => present?.has(metadata.name))
    if (left.length === 0) continue
    const nodes = left.map(({ metadata }) => metadata.name).join(', ')
    return { what: `${part} on ${nodes}`, why: (await partTrouble(admin, part, SYSTEM_NAMESPACE, signal))?.why }
  }
  return undefined
}

// A leave that did not complete, as the next join finds it. The join undoes it if the broker has not got the report,
// and completes it otherwise.

interface MendLeaveInit extends LeaveClusterInit {
  readonly token: string | undefined
  readonly dryRun: boolean
  /** `--context c1`, for the commands that messages recommend. */
  readonly flags: string
  /** The namespace of the installation. */
  readonly namespace: string
}

const NONE = { [LEAVE_REQUESTED_ANNOTATION]: null, [LEAVE_UNREPORTED_ANNOTATION]: null }

/**
 * Returns what it has changed, as a clause; undefined if that is nothing. Throws UserError if this cluster has left and
 * no token is given to join with.
 */
export async function mendBrokenLeave(
  { admin, dynamic }: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  init: MendLeaveInit,
): Promise<string | undefined> {
  const { signal, say, dryRun, namespace, token, flags } = init
  const membership = await admin.get(MEMBERSHIP, signal)
  if (membership === undefined) return undefined
  const isLeaving = (membership['spec'] as { phase?: string } | undefined)?.phase === 'leaving'
  const isRequested = membership.metadata.annotations?.[LEAVE_REQUESTED_ANNOTATION] !== undefined
  if (!isLeaving && !isRequested) return undefined
  const identity = secretIdentity(identitySecret(admin, namespace, signal))
  const isMember = (await identity.read()) !== undefined
  if (isMember || !isLeaving) {
    say('a leave that was not reported to the broker is undone\n')
    if (dryRun) return undefined
    await admin.merge(MEMBERSHIP, { metadata: { annotations: NONE }, spec: { phase: 'joined' } }, signal)
    // Removes the note of the agent about why it could not leave.
    await identity.problem(undefined)
    return 'the earlier leave was undone'
  }
  // The parts remove themselves, and whatever is installed now would be removed with them.
  if (token === undefined) {
    throw new UserError(`${admin.title} has left its clusterset: its parts remove themselves`, {
      hint: `finish the leave: sealane leave ${flags}; or join again with a token: sealane join ${flags} --token-file FILE`,
    })
  }
  say('an earlier leave is completed first\n')
  if (dryRun) return undefined
  await leaveCluster(admin, discover(await readSnapshot(snapshotReader(dynamic), signal)), init)
  return 'the earlier leave was completed'
}

interface PodShape {
  readonly spec?: { readonly containers?: readonly { readonly image?: string; readonly imagePullPolicy?: string }[] }
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] }
}

/**
 * For `leave --force`: applies the node parts whose pods cannot run, and so cannot clean up, with an image that is
 * known to run in this cluster. The new pods detect that the cluster leaves, and remove themselves.
 */
async function mendNodeParts(admin: ClusterAdmin, { signal, say }: LeaveClusterInit): Promise<void> {
  const values = await runningImage(admin, signal)
  const names = [objectName('gateway'), objectName('routeagent')]
  const objects = planMember(values).flatMap((part) => part.objects)
  for (const object of objects.filter(({ kind, metadata }) => kind === 'DaemonSet' && names.includes(metadata.name))) {
    const found = await admin.get(refOf(object), signal)
    if (found !== undefined && isRolledOut(rolloutOf(found))) continue
    await admin.apply(object, { dryRun: false }, signal)
    say(`  repaired  ${titleOf(refOf(object))}  (to clean up; it had pods that do not run)\n`)
  }
}

/** The image of a pod of Sealane that is ready, else the image that a join would install now. */
async function runningImage(admin: ClusterAdmin, signal: AbortSignal): Promise<InstallValues> {
  const scope = { namespace: SYSTEM_NAMESPACE, labelSelector: 'app.kubernetes.io/name=sealane' }
  const pods = (await admin.list('v1', 'Pod', scope, signal)) as unknown as PodShape[]
  const ready = pods.filter(
    ({ status }) => status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true,
  )
  const { image, imagePullPolicy } = ready[0]?.spec?.containers?.[0] ?? {}
  if (image === undefined) return DEFAULT_VALUES
  return imageValues(DEFAULT_VALUES, image, imagePullPolicy ?? DEFAULT_VALUES.image.pullPolicy)
}
