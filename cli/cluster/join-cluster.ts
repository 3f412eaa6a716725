/**
 * `sealane join --context`: looks at a cluster, says what it found, installs, leaves the token for the agent, and waits
 * until lanes are up and names are answered. Each step can be repeated: a join that broke off is finished by the same
 * command.
 */
import {
  IDENTITY_SECRET,
  type InstallValues,
  type ManifestObject,
  type MarkValues,
  marked,
  objectName,
} from '../../install/values/values.ts'
import { type ObjectRef, refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import { MEMBERSHIP_NAME, type Membership, addressNotes, oneLine } from '../../model/model.ts'
import {
  ASK_FIRST_ANNOTATION,
  type MemberIdentity,
  NO_PROBLEM,
  type SecretAccess,
  secretIdentity,
} from '../../protocol/membership/membership.ts'
import { parseJoinToken } from '../../protocol/identity/identity.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError, sealaneVersion } from '../../runtime/runtime.ts'
import {
  type Advice,
  type Ask,
  type Discovery,
  type Lookable,
  advice,
  describeAdvice,
  describeDiscovery,
  discover,
  hindrances,
  readSnapshot,
  snapshotReader,
} from '../discovery/discovery.ts'
import { type LookAtJoin, agreeOnRenumbering } from './renumbering.ts'
import type { ClusterAdmin } from '../context/context.ts'
import {
  type ApplyContext,
  type AskedOptions,
  type Change,
  type InstalledObjects,
  type Missing,
  type Progress,
  type WorkloadShape,
  applyCrds,
  applyNodes,
  applyObjects,
  applySecretMarks,
  checkRights,
  crdsMissing,
  describeChange,
  imageQuestion,
  memberRights,
  planSecretMarks,
  readMarks,
  requireAdmission,
  requireImage,
  rolloutProgress,
  waitUntil,
  wantedCrds,
} from '../installation/installation.ts'
import {
  type RekeyInit,
  bringToken,
  identitySecret,
  knownMembership,
  offerSecret,
  rekeyingBroker,
} from './identity-secret.ts'
import { type ClusterDnsOutcome, watchClusterDns, wireClusterDns } from './wire-cluster-dns.ts'
import { agreeOnChanges, answered, chooseId } from './join-questions.ts'
import { type JoinPlan, type JoinOptions, openQuestions, planJoin } from './plan-join.ts'
import { mendBrokenLeave } from './leave/leave-cluster.ts'
import { describeInstalled, readInstalled } from './installed-member.ts'
import { joinProgress, lanesProgress } from './watch-join.ts'

export interface JoinClusterInit {
  /** Undefined: everything but the token, as for GitOps. */
  readonly token: string | undefined
  readonly chosen: JoinOptions
  readonly values: InstallValues
  /** What of the values was asked for, and is not merely the default. */
  readonly asked?: AskedOptions
  readonly dryRun: boolean
  /**
   * Asks whether changes that were shown are to be made; undefined where nobody can be asked, or nobody wants to be.
   */
  readonly confirm?: ((question: string) => Promise<boolean>) | undefined
  /** See RekeyInit. Absent: a member that has lost its identity needs a token. */
  readonly rekey?: RekeyInit['rekey']
  /** Asks the broker what the join would change for others; absent: nobody asks it. */
  readonly look?: LookAtJoin
  /** Joins although something is known not to work. */
  readonly force: boolean
  /** `--context c1`, for the commands that are advised. */
  readonly flags: string
  readonly timeoutMs: number
  /** How long to wait for an operator of the broker to accept this cluster; absent: as long as the token lasts. */
  readonly approvalMs?: number | undefined
  /** Asks a person; undefined where nobody can be asked. */
  readonly ask: ((question: Ask) => Promise<readonly string[]>) | undefined
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

export interface JoinedCluster {
  readonly plan: JoinPlan
  readonly advice: readonly Advice[]
  readonly dns: ClusterDnsOutcome
  readonly others: Others
}

export interface Others {
  /** Ids of the clusters that are reached. */
  readonly reached: readonly string[]
  /** There is no other member. */
  readonly alone: boolean
}

export interface PreparedJoin {
  readonly plan: JoinPlan
  readonly discovery: Discovery
  readonly advice: readonly Advice[]
  readonly live: InstalledObjects
}

/** What was found, decided and asked, before anything is changed. Throws UserError, TokenError. */
export async function prepareJoin(
  { admin, dynamic }: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  init: JoinClusterInit,
): Promise<PreparedJoin> {
  const { signal, say, clock } = init
  if (init.token !== undefined) parseJoinToken(init.token, clock.now())
  const discovery = discover(await readSnapshot(snapshotReader(dynamic), signal))
  const live = await readInstalled(admin, init.values, signal)
  const asks = openQuestions(discovery, init.chosen)
  const given = advice(discovery)
  say(`${admin.title}:\n`)
  for (const line of describeDiscovery({ ...discovery, asks })) say(`  ${line}\n`)
  for (const line of describeAdvice(given)) say(`  ${line}\n`)
  if (discovery.obstacles.length > 0) throw new UserError(discovery.obstacles.join('\n'))
  const against = hindrances(given)
  if (against.length > 0 && !init.force) {
    throw new UserError(against.map(({ text }) => text).join('\n'), { hint: 'join all the same with --force' })
  }
  const chosen = await answered(asks, init)
  const clusterId = chooseId(chosen, { discovery, live, values: init.values }, admin, init.flags)
  const plan = planJoin(discovery, { ...chosen, clusterId }, init.values, { live, asked: init.asked ?? {} })
  for (const note of plan.notes) say(`  note: ${note}\n`)
  return { plan, discovery, advice: given, live }
}

/** Throws UserError with what prevents the join; what is done stays done. */
export async function joinCluster(
  open: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  init: JoinClusterInit,
): Promise<JoinedCluster> {
  const { admin } = open
  const { signal, dryRun, say } = init
  await checkRights(admin, memberRights(init.values.member.namespace), signal)
  await namespaceStays(admin, init)
  await mendBrokenLeave(open, { ...init, namespace: init.values.member.namespace })
  const prepared = await prepareJoin(open, init)
  const { plan, discovery, advice: given, live } = prepared
  const { common } = plan.values
  const { namespace } = init.values.member
  const secret = identitySecret(admin, namespace, signal, common.objects)
  const isRunning = init.token === undefined && discovery.earlier.state === 'member' && agentRuns(live, init.values)
  if (isRunning && !dryRun) await offerSecret(secret, init)
  const broker = await rekeyingBroker(secret, discovery.earlier, { ...init, title: admin.title })
  if (broker !== undefined) say(`${secret.place} has no identity: the broker gives ${plan.clusterId} a new one\n`)
  const earlier = { clusterId: discovery.earlier.clusterId, wanted: plan.clusterId }
  const known =
    broker === undefined ? await knownMembership(secret, earlier, { ...init, title: admin.title }) : undefined
  say(describeInstalled(plan, live, known !== undefined))
  const made = adviceObjects(given, common)
  const crds = await wantedCrds(admin, common.objects, signal)
  await requireAdmission(admin, [...crds, ...plan.objects, ...made], init)
  const marks = { before: readMarks(live.values()).objects, wanted: common.objects }
  const secrets = await planSecretMarks(admin, { namespace, names: [IDENTITY_SECRET], marks }, signal)
  const isWanted = await agreeOnChanges(admin, { ...prepared, made, marks: common.objects, secrets }, init)
  const report = (change: Change): void => say(describeChange(change, dryRun))
  const context: ApplyContext = { admin, dryRun, signal, report, marks: common.objects }
  if (!init.force && plan.objects.some((object) => startsPods(object) && isWanted(refOf(object)))) {
    await requireImage(admin, imageQuestion(common, namespace, 'every'), init)
  }
  const asksFirst = known === undefined && (await agreeOnOthers(plan, init)) === 'unknown'
  if (dryRun) return dryJoin(prepared, admin, init)
  await applyCrds(context)
  await until(init, 'the new kinds to be served', () => crdsMissing(admin, signal))
  // Only now: nothing stands in the way any more, and everybody has agreed.
  const token = broker === undefined ? init.token : await broker.rekey()
  await install(plan, context, { ...init, token, secret, known, asksFirst, isWanted })
  await applySecretMarks(admin, secrets, context)
  await applyObjects(
    made.filter((object) => isWanted(refOf(object))),
    context,
  )
  await watchStart(plan, admin, { ...init, secret })
  // Now: while pods start, the cluster's DNS reads its settings.
  const dns = await wireClusterDns(admin, discovery, init)
  const others = await watchParts(plan, admin, { ...init, dns })
  // What somebody has to do by hand first is not waited for.
  const late = dns.left.length > 0 ? undefined : await watchClusterDns(admin, plan.clusterId, init)
  return { plan, advice: given, dns: late === undefined ? dns : { left: [late] }, others }
}

/** A member that joins again has done this. `unknown`: the agent asks the broker, from inside, before it joins. */
async function agreeOnOthers(
  { clusterId, podCIDRs, serviceCIDRs }: JoinPlan,
  init: JoinClusterInit,
): Promise<'agreed' | 'unknown'> {
  const { token, look, clock, dryRun, confirm, say, signal } = init
  if (token === undefined || look === undefined) return 'agreed'
  const facts = { podCIDRs, serviceCIDRs, labels: {}, version: sealaneVersion() }
  const ask = { token: parseJoinToken(token, clock.now()), cluster: clusterId, facts }
  const agreed = await agreeOnRenumbering({ ...ask, look, say, signal, confirm: dryRun ? undefined : confirm })
  if (agreed === 'unknown') {
    say(
      'note: the broker is not reached from here: the agent asks it, before it joins, what changes for other members\n',
    )
  }
  return agreed
}

/** Of what runs the image. */
function startsPods({ kind }: ManifestObject): boolean {
  return kind === 'Deployment' || kind === 'DaemonSet'
}

function agentRuns(live: InstalledObjects, { member: { namespace } }: InstallValues): boolean {
  const status = live.get(titleOf({ kind: 'Deployment', namespace, name: objectName('agent') }))?.['status']
  return ((status as WorkloadShape['status'])?.readyReplicas ?? 0) > 0
}

/** What a dry run says beside the changes. */
async function dryJoin(
  { plan, discovery, advice: given }: PreparedJoin,
  admin: ClusterAdmin,
  init: JoinClusterInit,
): Promise<JoinedCluster> {
  // Says what applying them would fail at.
  const marks = plan.values.common.objects
  await applyCrds({ admin, dryRun: true, signal: init.signal, report: () => undefined, marks })
  const dns = await wireClusterDns(admin, discovery, init)
  return { plan, advice: given, dns, others: { reached: [], alone: true } }
}

/** A namespace that is being removed takes along whatever is put into it now. */
async function namespaceStays(admin: ClusterAdmin, init: JoinClusterInit): Promise<void> {
  const { name, ...type } = { apiVersion: 'v1', kind: 'Namespace', name: init.values.member.namespace }
  const look = async (): Promise<Missing | undefined> => {
    const found = await admin.get({ ...type, name }, init.signal)
    return found !== undefined && 'deletionTimestamp' in found.metadata ? { what: name } : undefined
  }
  if ((await look()) === undefined) return
  if (init.dryRun) throw new UserError(`Namespace ${name} is being removed: a join waits until it is gone`)
  await until(init, 'a namespace that is being removed to be gone', look)
}

/** Gives the clusters that are reached. When that fails, what is left to do about DNS is said all the same. */
async function watchParts(
  plan: JoinPlan,
  admin: ClusterAdmin,
  init: JoinClusterInit & { readonly dns: ClusterDnsOutcome },
): Promise<Others> {
  const { namespace } = init.values.member
  try {
    await untilAll(init, 'parts to be ready', () => rolloutProgress(admin, namespace, init.signal))
    init.say('all parts are ready\n')
    await reportAddresses(admin, init)
    return await watchLanes(plan, admin, init)
  } catch (error) {
    for (const line of init.dns.left) init.say(`cluster DNS: ${line}\n`)
    throw error
  }
}

/** What the broker said when it took this cluster in: its members are called by other addresses, and why. */
async function reportAddresses(admin: ClusterAdmin, { signal, say }: JoinClusterInit): Promise<void> {
  const ref = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME }
  const membership = (await admin.get(ref, signal)) as unknown as Membership | undefined
  for (const note of membership === undefined ? [] : addressNotes(membership)) say(`addresses: ${oneLine(note)}\n`)
}

/** What Sealane does itself for this kind of cluster. */
export function adviceObjects(given: readonly Advice[], marks: MarkValues): readonly ManifestObject[] {
  return marked(
    given.flatMap(({ objects }) => objects as readonly ManifestObject[]),
    marks,
  )
}

interface InstallInit extends JoinClusterInit {
  readonly secret: SecretAccess
  readonly known: MemberIdentity | undefined
  readonly asksFirst: boolean
  /** False for what stays as it is: applying it would make us an owner of what others wrote. */
  readonly isWanted: (ref: ObjectRef) => boolean
}

async function install(plan: JoinPlan, context: ApplyContext, init: InstallInit): Promise<void> {
  const isFirst = ({ kind }: ManifestObject): boolean => kind === 'Namespace'
  const objects = plan.objects.filter((object) => init.isWanted(refOf(object)))
  await applyObjects(objects.filter(isFirst), context)
  await applyNodes(
    plan.nodes.filter(({ node }) => init.isWanted({ apiVersion: 'v1', kind: 'Node', name: node })),
    context,
  )
  if (init.token !== undefined) await bringToken(init.secret, init, init.token)
  await applyObjects(
    objects.filter((object) => !isFirst(object)),
    context,
  )
}

async function watchStart(
  { site }: JoinPlan,
  admin: ClusterAdmin,
  init: JoinClusterInit & { readonly secret: SecretAccess },
): Promise<void> {
  const { values, secret, signal, say, clock } = init
  const { namespace } = values.member
  const approvalMs = init.approvalMs ?? tokenLasts(init)
  let answeringMs = 0
  await until(init, 'the broker to take this cluster in', async () => {
    const place = { secret, settings: site, namespace, nowMs: clock.now(), approvalMs }
    const missing = await joinProgress(admin, place, signal)
    if (missing?.asks === undefined) return missing && withMore(missing, init, answeringMs)
    const begun = clock.monotonic()
    await agreeFromInside(missing.asks, init)
    answeringMs += clock.monotonic() - begun
    const next = await joinProgress(admin, place, signal)
    return next && withMore(next, init, answeringMs)
  })
  // One lies there still where the agent had another one, and was faster.
  await until(init, 'the token to go', async () => {
    await secretIdentity(secret).dropToken()
    return undefined
  })
  say('joined\n')
}

/** A person who was asked took so long: nobody else did. */
function withMore(missing: Missing, { timeoutMs }: JoinClusterInit, moreMs: number): Missing {
  return moreMs === 0 ? missing : { ...missing, mayTakeMs: (missing.mayTakeMs ?? timeoutMs) + moreMs }
}

/** What the agent has heard from the broker before it joins: nothing has changed for anybody yet. */
async function agreeFromInside(
  text: string,
  { secret, confirm, say }: JoinClusterInit & { readonly secret: SecretAccess },
): Promise<void> {
  say(`${text}\n`)
  if (confirm !== undefined && !(await confirm('Join all the same'))) {
    await secretIdentity(secret).dropToken()
    throw new UserError('this cluster has not joined: the token is taken away, and nobody has got other addresses', {
      hint: 'take out what was installed with sealane leave',
    })
  }
  await secret.change({ annotations: { ...NO_PROBLEM, [ASK_FIRST_ANNOTATION]: null } })
}

/** Milliseconds; one that an earlier join has brought is not known here. */
function tokenLasts({ token, clock }: JoinClusterInit): number | undefined {
  return token === undefined ? undefined : Math.max(0, parseJoinToken(token, 0).expiresAtMs - clock.now())
}

/** Gives the clusters that are reached: all that are in contact. */
async function watchLanes(plan: JoinPlan, admin: ClusterAdmin, init: JoinClusterInit): Promise<Others> {
  const { reached, alone } = await untilAll(init, 'lanes', () => lanesProgress(admin, plan, init.signal))
  if (reached.length > 0) init.say(`lanes are up, and probes pass: ${reached.join(', ')}\n`)
  return { reached, alone }
}

/** As until(); then names what was not waited for, and gives the last look. */
async function untilAll<P extends Progress>(init: JoinClusterInit, what: string, look: () => Promise<P>): Promise<P> {
  let last: P | undefined
  await until(init, what, async () => (last = await look()).missing)
  for (const one of last?.leftOut ?? []) init.say(`not waited for: ${one}\n`)
  return last ?? look()
}

function until(
  { clock, signal, say, timeoutMs }: JoinClusterInit,
  what: string,
  look: () => Promise<Missing | undefined>,
): Promise<void> {
  const hint = 'the same command goes on where this one ended'
  return waitUntil(look, { what, timeoutMs, clock, signal, say, hint })
}
