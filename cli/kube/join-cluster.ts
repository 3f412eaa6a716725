/**
 * `sealane join --context`: looks at a cluster, says what it found, installs, leaves the token for the agent, and waits
 * until lanes are up and names are answered. Each step can be repeated: a join that broke off is finished by the same command.
 */
import type { ManifestObject } from '../../install/manifest-object.ts'
import type { InstallValues } from '../../install/values.ts'
import { IDENTITY_SECRET, IDENTITY_SECRET_TYPE, partLabels } from '../../install/names.ts'
import { type ClusterId, parseClusterId } from '../../model/ids.ts'
import type { MemberIdentity } from '../../protocol/identity/member-files.ts'
import { endOfIdentity } from '../../protocol/join.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type Advice, advice, hindrances } from '../discovery/advice.ts'
import { describeAdvice, describeDiscovery } from '../discovery/describe.ts'
import { type Ask, type Discovery, discover } from '../discovery/discover.ts'
import { readSnapshot } from '../discovery/read-snapshot.ts'
import { joinProblem, secretIdentity } from '../secret-identity.ts'
import type { ClusterAdmin } from './admin.ts'
import {
  type ApplyContext,
  applyCrds,
  describeChange,
  applyNodes,
  applyObjects,
  crdsMissing,
  leaveToken,
} from './apply-join.ts'
import { checkRights, memberRights } from './check-rights.ts'
import { type ClusterDnsOutcome, wireClusterDns } from './wire-cluster-dns.ts'
import { type JoinPlan, type JoinWishes, idFromName, openQuestions, planJoin } from './plan-join.ts'
import { secretAccess } from './secret-access.ts'
import { type Lookable, snapshotReader } from './snapshot-reader.ts'
import { type Missing, waitUntil } from './wait-until.ts'
import { watchClusterDns } from './watch-cluster-dns.ts'
import { type Progress, joinProgress, lanesProgress, rolloutProgress } from './watch-join.ts'

export interface JoinClusterInit {
  /** Undefined: everything but the token, as for GitOps. */
  readonly token: string | undefined
  readonly wishes: JoinWishes
  readonly values: InstallValues
  readonly dryRun: boolean
  /** Joins although something is known not to work. */
  readonly force: boolean
  /** `--context c1`, for the commands that are advised. */
  readonly flags: string
  readonly timeoutMs: number
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
}

/** What was found, decided and asked, before anything is changed. Throws UserError, TokenError. */
export async function prepareJoin(
  { admin, dynamic }: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  init: JoinClusterInit,
): Promise<PreparedJoin> {
  const { signal, say, clock } = init
  if (init.token !== undefined) parseJoinToken(init.token, clock.now())
  const discovery = discover(await readSnapshot(snapshotReader(dynamic), signal))
  const asks = openQuestions(discovery, init.wishes)
  const given = advice(discovery)
  say(`${admin.title}:\n`)
  for (const line of describeDiscovery({ ...discovery, asks })) say(`  ${line}\n`)
  for (const line of describeAdvice(given)) say(`  ${line}\n`)
  if (discovery.obstacles.length > 0) throw new UserError(discovery.obstacles.join('\n'))
  const against = hindrances(given)
  if (against.length > 0 && !init.force) {
    throw new UserError(against.map(({ text }) => text).join('\n'), { hint: 'join all the same with --force' })
  }
  const wishes = await answered(asks, init)
  const clusterId = chooseId(wishes, discovery, admin, init.flags)
  return { plan: planJoin(discovery, { ...wishes, clusterId }, init.values), discovery, advice: given }
}

/** Throws UserError with what stands in the way; what is done stays done. */
export async function joinCluster(
  open: { readonly admin: ClusterAdmin; readonly dynamic: Lookable },
  init: JoinClusterInit,
): Promise<JoinedCluster> {
  const { admin } = open
  const { signal, dryRun, say } = init
  await checkRights(admin, memberRights(init.values.member.namespace), signal)
  const { plan, discovery, advice: given } = await prepareJoin(open, init)
  const known = await knownMembership(admin, init, discovery)
  const context: ApplyContext = { admin, dryRun, signal, tell: (change) => say(describeChange(change, dryRun)) }
  await applyCrds(context)
  if (!dryRun) await until(init, 'the new kinds to be served', () => crdsMissing(admin, signal))
  await install(plan, context, { ...init, known })
  await applyObjects(adviceObjects(given), context)
  // Early: while pods start, the cluster's DNS reads its settings. Only names that nobody could ask before are concerned.
  const dns = await wireClusterDns(admin, discovery, { ...init, dryRun })
  if (!dryRun) await watchStart(plan, admin, init)
  const others = dryRun ? { reached: [], alone: true } : await watchLanes(plan, admin, init)
  // What somebody has to do by hand first is not waited for.
  const late = dryRun || dns.left.length > 0 ? undefined : await watchClusterDns(admin, plan.clusterId, init)
  return { plan, advice: given, dns: late === undefined ? dns : { left: [late] }, others }
}

/** What Sealane does itself for this kind of cluster. */
export function adviceObjects(given: readonly Advice[]): readonly ManifestObject[] {
  return given.flatMap(({ objects }) => objects as readonly ManifestObject[])
}

type InstallInit = JoinClusterInit & { readonly known: MemberIdentity | undefined }

async function install(plan: JoinPlan, context: ApplyContext, init: InstallInit): Promise<void> {
  const { admin, dryRun, signal } = context
  const first = plan.objects.filter(({ kind }) => kind === 'Namespace')
  await applyObjects(first, context)
  await applyNodes(plan.nodes, context)
  if (!dryRun && init.token !== undefined) await bringToken(admin, init, init.token, signal)
  await applyObjects(
    plan.objects.filter((object) => !first.includes(object)),
    context,
  )
}

/** The identity of an earlier join, if there is one that still counts. Throws UserError where this join cannot go on. */
async function knownMembership(
  admin: ClusterAdmin,
  init: JoinClusterInit,
  { earlier }: Discovery,
): Promise<MemberIdentity | undefined> {
  const { token, clock, signal, flags, say } = init
  const secret = identitySecret(admin, init, signal)
  const known = await secretIdentity(secret).read()
  // Every part takes itself out: what is installed now would go with it.
  if (token !== undefined && earlier.state === 'leaving') throw isLeaving(admin, known, flags)
  if (known === undefined || token === undefined) return known
  const { clusterset } = parseJoinToken(token, clock.now())
  if (known.clusterset !== clusterset) {
    throw new UserError(`${admin.title} is already joined as ${known.cluster} in clusterset ${known.clusterset}`, {
      hint: `leave first: sealane leave ${flags}`,
    })
  }
  const endsAtMs = endOfIdentity(known)
  if (endsAtMs <= clock.now()) {
    say(`joined before as ${known.cluster}; that certificate ended at ${new Date(endsAtMs).toISOString()}\n`)
    return undefined
  }
  const refused = joinProblem(await secret.read(), '')?.text
  if (refused !== undefined) {
    throw new UserError(`${admin.title} has joined as ${known.cluster}, and the broker refuses it: ${refused}`, {
      hint: `leave first: sealane leave ${flags}`,
    })
  }
  return known
}

/** An identity that is gone means that the broker was told. */
function isLeaving({ title }: ClusterAdmin, known: MemberIdentity | undefined, flags: string): UserError {
  if (known === undefined) {
    return new UserError(`${title} is leaving its clusterset: its parts take themselves out`, {
      hint: `finish that first: sealane leave ${flags}`,
    })
  }
  return new UserError(`${title} is leaving clusterset ${known.clusterset}: the broker is not told yet`, {
    hint: `finish that first: sealane leave ${flags}; with --force where the broker is gone for good`,
  })
}

async function bringToken(admin: ClusterAdmin, init: InstallInit, token: string, signal: AbortSignal): Promise<void> {
  const { known, say } = init
  if (known !== undefined) say(`already joined as ${known.cluster}: the token is not used\n`)
  else await leaveToken(identitySecret(admin, init, signal), token)
}

async function watchStart({ site }: JoinPlan, admin: ClusterAdmin, init: JoinClusterInit): Promise<void> {
  const { values, signal, say, clock } = init
  const { namespace } = values.member
  const secret = identitySecret(admin, init, signal)
  await until(init, 'the broker to take this cluster in', () =>
    joinProgress(admin, { secret, settings: site, namespace, nowMs: clock.now() }, signal),
  )
  say('joined\n')
  await untilAll(init, 'parts to be ready', () => rolloutProgress(admin, namespace, signal))
  say('all parts are ready\n')
}

/** Gives the clusters that are reached: all that are in contact. */
async function watchLanes({ gateways }: JoinPlan, admin: ClusterAdmin, init: JoinClusterInit): Promise<Others> {
  const { reached, alone } = await untilAll(init, 'lanes', () => lanesProgress(admin, gateways, init.signal))
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

function identitySecret(admin: ClusterAdmin, { values }: JoinClusterInit, signal: AbortSignal) {
  const { namespace } = values.member
  const labels = partLabels('agent')
  return secretAccess(admin, { namespace, name: IDENTITY_SECRET, type: IDENTITY_SECRET_TYPE, labels }, signal)
}

async function answered(asks: readonly Ask[], { wishes, ask }: JoinClusterInit): Promise<JoinWishes> {
  let answers = wishes
  for (const question of asks) {
    if (ask === undefined) throw new UserError(`${question.why}: say ${FLAGS[question.field]}`, { exitCode: 2 })
    const said = await ask(question)
    answers =
      question.field === 'gateways'
        ? { ...answers, gateways: said.map((node) => ({ node })) }
        : { ...answers, [question.field]: said }
  }
  return answers
}

const FLAGS: Readonly<Record<Ask['field'], string>> = {
  podCIDRs: '--pod-cidr CIDR',
  serviceCIDRs: '--service-cidr CIDR',
  gateways: '--gateway NODE',
}

/** What was said; else what an earlier join used; else the context's name. */
function chooseId(wishes: JoinWishes, discovery: Discovery, admin: ClusterAdmin, flags: string): ClusterId {
  const earlier = discovery.earlier.clusterId
  if (wishes.clusterId !== undefined) {
    if (earlier !== undefined && earlier !== wishes.clusterId) {
      throw new UserError(`--cluster-id ${wishes.clusterId}: this cluster is a member already, as ${earlier}`, {
        hint: `leave first: sealane leave ${flags}`,
      })
    }
    return wishes.clusterId
  }
  const id = earlier ?? idFromName(admin.contextName)
  if (id === undefined)
    throw new UserError(`no cluster id follows from ${admin.title}: say --cluster-id`, { exitCode: 2 })
  return parseClusterId(id)
}
