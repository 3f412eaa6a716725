/**
 * `sealane join --context`: examines a cluster, prints the findings, installs the parts, stores the token for the
 * agent, and waits until lanes are up and names are answered. Each step can be repeated, so the same command completes
 * an interrupted join.
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
import { likelyRungText } from '../../model/lanes/lanes.ts'
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
  RolloutRoom,
  type WorkloadShape,
  applyCrds,
  applyNodes,
  applyObjects,
  applyRights,
  applySecretMarks,
  checkRights,
  crdsMissing,
  describeChange,
  hasSecurityContextConstraints,
  imageQuestion,
  memberRights,
  planSecretMarks,
  preferLocalRights,
  readMarks,
  removalRights,
  requireAdmission,
  requireImage,
  restoreRecorded,
  rightsBesides,
  rolloutProgress,
  waitUntil,
  wantedCrds,
} from '../installation/installation.ts'
import {
  type RekeyInit,
  storeToken,
  identitySecret,
  knownMembership,
  offerSecret,
  rekeyingBroker,
} from './identity-secret.ts'
import { type ClusterDnsOutcome, watchClusterDns, wireClusterDns, wiringRights } from './wire-cluster-dns.ts'
import { agreeOnChanges, answered, chooseId } from './join-questions.ts'
import { callableGateways } from './plan-gateways.ts'
import { type JoinPlan, type JoinOptions, installedSite, openQuestions, planJoin } from './plan-join.ts'
import { removeObjects } from './leave/remove-installation.ts'
import { mendBrokenLeave } from './leave/leave-cluster.ts'
import { describeInstalled, readInstalled } from './installed-member.ts'
import { PREFER_LOCAL, PREFER_LOCAL_REF, planPreferLocal, stayingPolicyText } from './prefer-local.ts'
import { joinProgress, lanesProgress } from './watch-join.ts'

export interface JoinClusterInit {
  /** Undefined to install everything except the token, as with GitOps. */
  readonly token: string | undefined
  readonly chosen: JoinOptions
  readonly values: InstallValues
  /** The values that the user asked for, as opposed to defaults. */
  readonly asked?: AskedOptions
  readonly dryRun: boolean
  /** Writes the default traffic policy by which calls stay near (prefer-local.ts). */
  readonly preferLocal?: boolean | undefined
  /**
   * Asks the user whether to make the changes that were shown. Undefined if there is no terminal, or if the user does
   * not want to be asked.
   */
  readonly confirm?: ((question: string) => Promise<boolean>) | undefined
  /** See RekeyInit. If undefined, a member that has lost its identity needs a token. */
  readonly rekey?: RekeyInit['rekey']
  /** Asks the broker what the join would change for other members. If undefined, the broker is not asked. */
  readonly look?: LookAtJoin
  /** Joins in spite of known problems. */
  readonly force: boolean
  /** `--context c1`, for the commands that messages recommend. */
  readonly flags: string
  readonly timeoutMs: number
  /**
   * How long to wait until an operator of the broker accepts this cluster. If undefined, as long as the token is valid.
   */
  readonly approvalMs?: number | undefined
  /** Asks the user. Undefined if there is no terminal. */
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
  /** The ids of the clusters that are reachable. */
  readonly reached: readonly string[]
  /** There is no other member. */
  readonly alone: boolean
}

export interface PreparedJoin {
  readonly plan: JoinPlan
  readonly discovery: Discovery
  readonly advice: readonly Advice[]
  readonly live: InstalledObjects
  /** The objects that are created in addition to the plan: of the advice, and the policy of --prefer-local. */
  readonly made: readonly ManifestObject[]
}

/** Finds out, decides and asks everything before the join changes anything. Throws UserError, TokenError. */
export async function prepareJoin(
  { admin, dynamic }: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  given: JoinClusterInit,
): Promise<PreparedJoin> {
  const init = await forPlatform(admin, given)
  const { signal, say, clock } = init
  if (init.token !== undefined) parseJoinToken(init.token, clock.now())
  const discovery = discover(await readSnapshot(snapshotReader(dynamic), signal))
  const live = await readInstalled(admin, init.values, signal)
  const asks = openQuestions(discovery, init.chosen)
  const { overlayPort } = given.chosen
  const port = overlayPort ?? installedSite(init.values, live)?.overlayPort
  const advised = advice(discovery, port === undefined ? {} : { overlayPort: port })
  say(`${admin.title}:\n`)
  for (const line of describeDiscovery({ ...discovery, asks })) say(`  ${line}\n`)
  for (const line of describeAdvice(advised)) say(`  ${line}\n`)
  if (discovery.obstacles.length > 0) throw new UserError(discovery.obstacles.join('\n'))
  const against = hindrances(advised)
  if (against.length > 0 && !init.force) {
    throw new UserError(against.map(({ text }) => text).join('\n'), { hint: 'to join anyway, use --force' })
  }
  const chosen = await answered(asks, init)
  const clusterId = chooseId(chosen, { discovery, live, values: init.values }, admin, init.flags)
  const plan = planJoin(discovery, { ...chosen, clusterId }, init.values, { live, asked: init.asked ?? {} })
  for (const note of plan.notes) say(`  note: ${note}\n`)
  say(`  reach: ${likelyRungText(callableGateways(discovery, plan.gateways))}\n`)
  const { common } = plan.values
  const made = [...adviceObjects(advised, common), ...marked(await nearPolicy(admin, init), common)]
  return { plan, discovery, advice: advised, live, made }
}

async function forPlatform(admin: ClusterAdmin, init: JoinClusterInit): Promise<JoinClusterInit> {
  const openshift = await hasSecurityContextConstraints(admin, init.signal)
  return { ...init, values: { ...init.values, platform: { ...init.values.platform, openshift } } }
}

/** Throws UserError, which says what prevents the join. Completed steps are not undone. */
export async function joinCluster(
  open: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  asked: JoinClusterInit,
): Promise<JoinedCluster> {
  const { admin } = open
  const init = await forPlatform(admin, asked)
  const { signal, dryRun, say, preferLocal = false } = init
  const rights = memberRights(init.values.member.namespace, init.values.platform.openshift)
  const checked = [...rights, ...(preferLocal ? preferLocalRights() : [])]
  await checkRights(admin, checked, signal)
  await namespaceStays(admin, init)
  const mended = await mendBrokenLeave(open, { ...init, namespace: init.values.member.namespace })
  const prepared = await prepareJoin(open, init)
  const { plan, discovery, advice: given, live, made } = prepared
  // Only the plan says which optional objects there are, and what goes.
  const exact = [...applyRights([...plan.objects, ...made]), ...removalRights(plan.removed)]
  const besides = rightsBesides([...exact, ...(await wiringRights(admin, discovery, init))], checked)
  const changed = mended === undefined ? undefined : `${mended}, and nothing else was changed`
  await checkRights(admin, besides, signal, changed)
  const { common } = plan.values
  const { namespace } = init.values.member
  const secret = identitySecret(admin, namespace, signal, common.objects)
  const isRunning = init.token === undefined && discovery.earlier.state === 'member' && agentRuns(live, init.values)
  if (isRunning && !dryRun) await offerSecret(secret, init)
  const broker = await rekeyingBroker(secret, discovery.earlier, { ...init, title: admin.title })
  if (broker !== undefined) say(`${secret.place} has no identity: the broker issues a new one for ${plan.clusterId}\n`)
  const earlier = { clusterId: discovery.earlier.clusterId, wanted: plan.clusterId }
  const known =
    broker === undefined ? await knownMembership(secret, earlier, { ...init, title: admin.title }) : undefined
  say(describeInstalled(plan, live, known !== undefined))
  const crds = await wantedCrds(admin, common.objects, signal)
  await requireAdmission(admin, [...crds, ...plan.objects, ...made], init)
  const marks = { before: readMarks(live.values()).objects, wanted: common.objects }
  const secrets = await planSecretMarks(admin, { namespace, names: [IDENTITY_SECRET], marks }, signal)
  const isWanted = await agreeOnChanges(admin, { ...prepared, marks: common.objects, secrets }, init)
  const report = (change: Change): void => say(describeChange(change, dryRun))
  const context: ApplyContext = { admin, dryRun, signal, report, marks: common.objects }
  if (!init.force && plan.objects.some((object) => startsPods(object) && isWanted(refOf(object)))) {
    await requireImage(admin, imageQuestion(common, namespace, 'every'), init)
  }
  const asksFirst = known === undefined && (await agreeOnOthers(plan, init)) === 'unknown'
  if (dryRun) return dryJoin(prepared, admin, init)
  for (const title of await restoreRecorded(admin, namespace, signal)) {
    say(`  restored  ${title}  (maxUnavailable, which a join had raised that was killed)\n`)
  }
  await applyCrds(context)
  await until(init, 'the API server to serve the new CRDs', () => crdsMissing(admin, signal))
  // rekey() revokes the old identity, so it is called only after all checks and questions.
  const token = broker === undefined ? init.token : await broker.rekey()
  await install(plan, context, { ...init, token, secret, known, asksFirst, isWanted })
  await removeObjects(admin, plan.removed, init)
  await applySecretMarks(admin, secrets, context)
  await applyObjects(
    made.filter((object) => isWanted(refOf(object))),
    context,
  )
  await watchStart(plan, admin, { ...init, secret })
  // The cluster's DNS reloads its settings while the pods start.
  const dns = await wireClusterDns(admin, discovery, init)
  const others = await watchParts(plan, admin, { ...init, dns })
  // There is no point in waiting if the user first has to change something by hand.
  const late = dns.left.length > 0 ? undefined : await watchClusterDns(admin, plan.clusterId, init)
  return { plan, advice: given, dns: late === undefined ? dns : { left: [late] }, others }
}

/**
 * Asks the user to agree to the changes for other members. A member that joins again has agreed before. `unknown` if
 * the broker is unreachable from here: then the agent asks it before it joins.
 */
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
      'note: the broker cannot be reached from here: before the join, the agent asks it what changes for other members\n',
    )
  }
  return agreed
}

/** True for the workloads that run the image. */
function startsPods({ kind }: ManifestObject): boolean {
  return kind === 'Deployment' || kind === 'DaemonSet'
}

function agentRuns(live: InstalledObjects, { member: { namespace } }: InstallValues): boolean {
  const status = live.get(titleOf({ kind: 'Deployment', namespace, name: objectName('agent') }))?.['status']
  return ((status as WorkloadShape['status'])?.readyReplicas ?? 0) > 0
}

/** The steps of a dry run after the preview of the changes. */
async function dryJoin(
  { plan, discovery, advice: given }: PreparedJoin,
  admin: ClusterAdmin,
  init: JoinClusterInit,
): Promise<JoinedCluster> {
  // Throws if applying the CRDs would fail.
  const marks = plan.values.common.objects
  await applyCrds({ admin, dryRun: true, signal: init.signal, report: () => undefined, marks })
  const dns = await wireClusterDns(admin, discovery, init)
  return { plan, advice: given, dns, others: { reached: [], alone: true } }
}

/** Waits for a namespace that is being deleted, because everything created in it now would be deleted too. */
async function namespaceStays(admin: ClusterAdmin, init: JoinClusterInit): Promise<void> {
  const { name, ...type } = { apiVersion: 'v1', kind: 'Namespace', name: init.values.member.namespace }
  const look = async (): Promise<Missing | undefined> => {
    const found = await admin.get({ ...type, name }, init.signal)
    return found !== undefined && 'deletionTimestamp' in found.metadata ? { what: name } : undefined
  }
  if ((await look()) === undefined) return
  if (init.dryRun) throw new UserError(`Namespace ${name} is being deleted: a join waits until it no longer exists`)
  await until(init, 'a namespace to be deleted', look)
}

/** Returns the clusters that are reachable. After a failure it still prints what is left to do about DNS. */
async function watchParts(
  plan: JoinPlan,
  admin: ClusterAdmin,
  init: JoinClusterInit & { readonly dns: ClusterDnsOutcome },
): Promise<Others> {
  const { namespace } = init.values.member
  try {
    await untilRolledOut(admin, namespace, init)
    init.say('all parts are ready\n')
    await reportAddresses(admin, init)
    return await watchLanes(plan, admin, init)
  } catch (error) {
    for (const line of init.dns.left) init.say(`cluster DNS: ${line}\n`)
    throw error
  }
}

/** How long the restoring of a DaemonSet may take, also after the user has interrupted the join. */
const RESTORE_MS = 10_000

async function untilRolledOut(admin: ClusterAdmin, namespace: string, init: JoinClusterInit): Promise<void> {
  const room = new RolloutRoom(admin, init.say)
  try {
    await untilAll(init, 'parts to be ready', async () => {
      const progress = await rolloutProgress(admin, namespace, init.signal)
      await room.make(progress.held, init.signal)
      return progress
    })
  } finally {
    const kept = await room.restore(AbortSignal.timeout(RESTORE_MS))
    for (const title of kept) init.say(`note: ${title} keeps a raised maxUnavailable; the next join restores it\n`)
  }
}

/**
 * Prints the notes that the broker sent at the join: which addresses of this cluster differ for other members, and why.
 */
async function reportAddresses(admin: ClusterAdmin, { signal, say }: JoinClusterInit): Promise<void> {
  const ref = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME }
  const membership = (await admin.get(ref, signal)) as unknown as Membership | undefined
  for (const note of membership === undefined ? [] : addressNotes(membership)) say(`addresses: ${oneLine(note)}\n`)
}

/** The policy of --prefer-local. None if it is not asked for, or if the cluster has a default of its own, which is shown. */
async function nearPolicy(
  admin: ClusterAdmin,
  { preferLocal = false, signal, say }: JoinClusterInit,
): Promise<readonly ManifestObject[]> {
  if (!preferLocal) return []
  const plan = planPreferLocal(await admin.get(PREFER_LOCAL_REF, signal))
  if (plan.writes) return [PREFER_LOCAL as unknown as ManifestObject]
  say(stayingPolicyText(plan.lines))
  return []
}

/** The objects that Sealane itself creates for this kind of cluster. */
function adviceObjects(given: readonly Advice[], marks: MarkValues): readonly ManifestObject[] {
  return marked(
    given.flatMap(({ objects }) => objects as readonly ManifestObject[]),
    marks,
  )
}

interface InstallInit extends JoinClusterInit {
  readonly secret: SecretAccess
  readonly known: MemberIdentity | undefined
  readonly asksFirst: boolean
  /**
   * False for objects that stay unchanged: applying them would make Sealane a field owner of what other managers wrote.
   */
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
  if (init.token !== undefined) await storeToken(init.secret, init, init.token)
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
  await until(init, 'the broker to accept this cluster', async () => {
    const place = { secret, settings: site, namespace, nowMs: clock.now(), approvalMs }
    const missing = await joinProgress(admin, place, signal)
    if (missing?.asks === undefined) return missing && withMore(missing, init, answeringMs)
    const begun = clock.monotonic()
    await agreeFromInside(missing.asks, init)
    answeringMs += clock.monotonic() - begun
    const next = await joinProgress(admin, place, signal)
    return next && withMore(next, init, answeringMs)
  })
  // The Secret still has a token if the agent joined with an earlier one before it saw this one.
  await until(init, 'the token to be removed', async () => {
    await secretIdentity(secret).dropToken()
    return undefined
  })
  say('joined\n')
}

/** Extends the time limit by the time that the user took to answer. */
function withMore(missing: Missing, { timeoutMs }: JoinClusterInit, moreMs: number): Missing {
  return moreMs === 0 ? missing : { ...missing, mayTakeMs: (missing.mayTakeMs ?? timeoutMs) + moreMs }
}

/**
 * Prints what the broker told the agent before the join, and asks the user to confirm. No member is affected up to
 * here.
 */
async function agreeFromInside(
  text: string,
  { secret, confirm, say }: JoinClusterInit & { readonly secret: SecretAccess },
): Promise<void> {
  say(`${text}\n`)
  if (confirm !== undefined && !(await confirm('Join anyway'))) {
    await secretIdentity(secret).dropToken()
    throw new UserError('this cluster has not joined: the token was removed, and no member has new addresses', {
      hint: 'remove what was installed: sealane leave',
    })
  }
  await secret.change({ annotations: { ...NO_PROBLEM, [ASK_FIRST_ANNOTATION]: null } })
}

/** The remaining validity of the token in milliseconds. Undefined for a token that an earlier join stored. */
function tokenLasts({ token, clock }: JoinClusterInit): number | undefined {
  return token === undefined ? undefined : Math.max(0, parseJoinToken(token, 0).expiresAtMs - clock.now())
}

/** Waits for the lanes to all clusters that are in contact with the broker. Returns the clusters that are reachable. */
async function watchLanes(plan: JoinPlan, admin: ClusterAdmin, init: JoinClusterInit): Promise<Others> {
  const { reached, alone } = await untilAll(init, 'lanes', () => lanesProgress(admin, plan, init.signal))
  if (reached.length > 0) init.say(`lanes are up, and probes pass: ${reached.join(', ')}\n`)
  return { reached, alone }
}

/** Like until(). Then prints what was not waited for, and returns the last result of `look`. */
async function untilAll<P extends Progress>(init: JoinClusterInit, what: string, look: () => Promise<P>): Promise<P> {
  let last: P | undefined
  await until(init, what, async () => (last = await look()).missing)
  for (const one of last?.leftOut ?? []) init.say(`not waiting for: ${one}\n`)
  return last ?? look()
}

function until(
  { clock, signal, say, timeoutMs }: JoinClusterInit,
  what: string,
  look: () => Promise<Missing | undefined>,
): Promise<void> {
  const hint = 'to continue, run the same command again'
  return waitUntil(look, { what, timeoutMs, clock, signal, say, hint })
}
