/**
 * `sealane leave --context`: the agent tells the broker and takes out what it mirrored, every node takes Sealane out of
 * its kernel, and then the installation goes. What is broken is named; `--force` mends what it can, and goes past the
 * rest.
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
import { type Missing, imageValues, isRolledOut, partTrouble, rolloutOf } from '../../installation/installation.ts'
import { identitySecret } from '../identity-secret.ts'
import { unwireClusterDns } from '../wire-cluster-dns.ts'
import { type LeaveClusterInit, removeInstallation, step } from './remove-installation.ts'

export const MEMBERSHIP: ObjectRef = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME }

/** Gives the id that the cluster had; undefined when it was no member. Throws UserError. */
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
    throw new UserError(`${admin.title}: Sealane is not installed there`)
  }
  if (membership === undefined) {
    await takeBackJoin(identitySecret(admin, SYSTEM_NAMESPACE, signal), init)
    await reportForgotten(admin, init)
  } else await endMembership(admin, init)
  const dns = await unwireClusterDns(admin, discovery, { ...init, dryRun: false })
  for (const line of dns.left) say(`cluster DNS: ${line}\n`)
  await removeInstallation(admin, discovery, init)
  return (membership?.['spec'] as { clusterId?: string } | undefined)?.clusterId
}

/** A join that waits for an operator's approval. Where the broker is not reached from here, it ends with its token. */
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
    say('the join that waited for approval is taken back\n')
  } catch (error) {
    signal.throwIfAborted()
    say(`the join that waits for approval ends with its token: it could not be taken back (${messageOf(error)})\n`)
  }
}

/** Token and key say which request is meant. */
const WITHDRAWN = {
  cluster: 'withdrawn' as ClusterId,
  facts: { podCIDRs: [], serviceCIDRs: [], labels: {}, version: sealaneVersion() },
}

/** Without the Membership no agent leaves: the broker goes on knowing this cluster. */
async function reportForgotten(admin: ClusterAdmin, { signal, say }: LeaveClusterInit): Promise<void> {
  const identity = await secretIdentity(identitySecret(admin, SYSTEM_NAMESPACE, signal))
    .read()
    .catch(() => undefined)
  if (identity === undefined) return
  say(
    `the broker cannot be told without the Membership: ${identity.cluster} stays a member until it is evicted: ` +
      `run there: sealane cluster evict ${identity.cluster}\n`,
  )
}

async function endMembership(admin: ClusterAdmin, init: LeaveClusterInit): Promise<void> {
  const { signal, say } = init
  await reportFirst(admin, init)
  const nodes = (): Promise<Missing | undefined> => nodesLeft(admin, signal)
  const what = 'every node to take Sealane out of its kernel'
  let clean = await step(init, what, nodes)
  if (!clean) {
    // A part that cannot clean up by itself is started anew, with an image that runs elsewhere here.
    await mendNodeParts(admin, init)
    clean = await step(init, what, nodes)
  }
  const left = clean ? undefined : await nodesLeft(admin, signal)
  if (left === undefined) say('left the clusterset\n')
  else say(`Sealane stays in the kernel until the node is restarted: ${left.what}\n`)
}

/** Before anything is taken away, but with --force. Where the broker is not told in time, all stays as it was. */
async function reportFirst(admin: ClusterAdmin, init: LeaveClusterInit): Promise<void> {
  const { signal, force } = init
  const wait = (): Promise<boolean> =>
    step(init, 'the broker to be told that this cluster leaves', () => unreported(admin, signal), UNHEARD)
  if (force || (await phaseOf(admin, signal)) === 'leaving') {
    // Taken back where an earlier attempt said it.
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
 * Also when it is stopped by hand: the agent would go on, and find the broker some day. True: the broker was told at the
 * last moment, and there is no way back.
 */
async function takeBackRequest(admin: ClusterAdmin, { signal, clock, say }: LeaveClusterInit): Promise<boolean> {
  const late = AbortSignal.timeout(UNDER_WAY_MS + 2 * TAKE_BACK_MS)
  try {
    await requestLeave(admin, 'withdrawn', late)
    const hasLeft = async (): Promise<boolean> => (await phaseOf(admin, late)) === 'leaving'
    // A call to the broker may be under way: what comes of it is known when its time is over.
    const end = clock.monotonic() + (signal.aborted ? 0 : UNDER_WAY_MS)
    while (!(await hasLeft()) && clock.monotonic() < end) await clock.sleep(500, late)
    if (await hasLeft()) return true
    if (!signal.aborted) await requestLeave(admin, null, late)
    say(
      'nothing was taken away: this cluster is a member as before; if the broker heard it all the same, sealane status ' +
        'says MemberLeft within a minute: leave again then\n',
    )
  } catch (failure) {
    say(`the request to leave could not be taken back: ${messageOf(failure)}; sealane join takes it back\n`)
  }
  return false
}

/** One call of the agent to the broker, and its write after it. */
const UNDER_WAY_MS = LEAVE_TIMEOUT_MS + 2000
const UNHEARD =
  'mend it and run this again, or go past it with --force; an agent of an earlier release does not hear of it: ' +
  'run sealane join first, which brings the new one'

/** To take back a request, also for a user who does not want to wait any more. */
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

/** Only the agent has the identity; it is gone when the agent has told the broker, or gives up. */
async function unreported(admin: ClusterAdmin, signal: AbortSignal): Promise<Missing | undefined> {
  const secret = identitySecret(admin, SYSTEM_NAMESPACE, signal)
  const isGone = (await secretIdentity(secret).read()) === undefined
  if (isGone && (await phaseOf(admin, signal)) !== 'joined') return undefined
  const trouble = await partTrouble(admin, 'agent', SYSTEM_NAMESPACE, signal)
  return { what: 'agent', why: joinProblem(await secret.read(), '')?.text ?? trouble?.why }
}

/** A node that has cleaned up removes its own objects; one that is no more never will. */
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

// A leave that did not end, as the next join finds it: taken back while the broker has not been told, else finished.

interface MendLeaveInit extends LeaveClusterInit {
  readonly token: string | undefined
  readonly dryRun: boolean
  /** `--context c1`, for the commands that are advised. */
  readonly flags: string
  /** Where Sealane is installed. */
  readonly namespace: string
}

const NONE = { [LEAVE_REQUESTED_ANNOTATION]: null, [LEAVE_UNREPORTED_ANNOTATION]: null }

/** Throws UserError where this cluster has left, and no token is given to join with. */
export async function mendBrokenLeave(
  { admin, dynamic }: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  init: MendLeaveInit,
): Promise<void> {
  const { signal, say, dryRun, namespace, token, flags } = init
  const membership = await admin.get(MEMBERSHIP, signal)
  if (membership === undefined) return
  const isLeaving = (membership['spec'] as { phase?: string } | undefined)?.phase === 'leaving'
  const isRequested = membership.metadata.annotations?.[LEAVE_REQUESTED_ANNOTATION] !== undefined
  if (!isLeaving && !isRequested) return
  const identity = secretIdentity(identitySecret(admin, namespace, signal))
  const isMember = (await identity.read()) !== undefined
  if (isMember || !isLeaving) {
    say('a leave that did not reach the broker is taken back\n')
    if (dryRun) return
    await admin.merge(MEMBERSHIP, { metadata: { annotations: NONE }, spec: { phase: 'joined' } }, signal)
    // The agent noted what stood in the way of leaving.
    await identity.problem(undefined)
    return
  }
  // Every part takes itself out: what is installed now would go with it.
  if (token === undefined) {
    throw new UserError(`${admin.title} has left its clusterset: its parts take themselves out`, {
      hint: `finish that: sealane leave ${flags}; or join anew with a token: sealane join ${flags} --token-file FILE`,
    })
  }
  say('a leave that did not end is finished first\n')
  if (!dryRun) await leaveCluster(admin, discover(await readSnapshot(snapshotReader(dynamic), signal)), init)
}

interface PodShape {
  readonly spec?: { readonly containers?: readonly { readonly image?: string; readonly imagePullPolicy?: string }[] }
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] }
}

/**
 * For `leave --force`: parts on nodes that cannot run, and so cannot clean up, are put back as they were installed,
 * with an image that is known to run in this cluster. They find that the cluster leaves, and take themselves out.
 */
async function mendNodeParts(admin: ClusterAdmin, { signal, say }: LeaveClusterInit): Promise<void> {
  const values = await runningImage(admin, signal)
  const names = [objectName('gateway'), objectName('routeagent')]
  const objects = planMember(values).flatMap((part) => part.objects)
  for (const object of objects.filter(({ kind, metadata }) => kind === 'DaemonSet' && names.includes(metadata.name))) {
    const found = await admin.get(refOf(object), signal)
    if (found !== undefined && isRolledOut(rolloutOf(found))) continue
    await admin.apply(object, { dryRun: false }, signal)
    say(`  mended    ${titleOf(refOf(object))}  (to clean up; it had pods that do not run)\n`)
  }
}

/** That of a pod of ours that is ready; else the one that would be installed now. */
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
