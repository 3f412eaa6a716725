/**
 * `sealane join --context`: looks at a cluster, says what it found, installs, leaves the token for the agent, and waits
 * until lanes are up and names are answered. Each step can be repeated: a join that broke off is finished by the same command.
 */
import type { ManifestObject } from '../../install/manifest-object.ts'
import type { InstallValues } from '../../install/values.ts'
import { type ClusterId, parseClusterId } from '../../model/ids.ts'
import type { MemberIdentity } from '../../protocol/identity/member-files.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type Advice, advice, hindrances } from '../discovery/advice.ts'
import { describeAdvice, describeDiscovery } from '../discovery/describe.ts'
import { type Ask, type Discovery, discover } from '../discovery/discover.ts'
import { readSnapshot } from '../discovery/read-snapshot.ts'
import { type SecretAccess, secretIdentity } from '../secret-identity.ts'
import type { ClusterAdmin } from './admin.ts'
import { type ApplyContext, applyCrds, describeChange, applyNodes, applyObjects, crdsMissing } from './apply-join.ts'
import { checkRights, memberRights } from './check-rights.ts'
import { imageQuestion, requireImage } from './image-check.ts'
import { bringToken, identitySecret, knownMembership } from './identity-secret.ts'
import { type ClusterDnsOutcome, wireClusterDns } from './wire-cluster-dns.ts'
import { type JoinPlan, type JoinWishes, idFromName, openQuestions, planJoin } from './plan-join.ts'
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
  const secret = identitySecret(admin, init.values.member.namespace, signal)
  const known = await knownMembership(secret, discovery.earlier, { ...init, title: admin.title })
  const context: ApplyContext = { admin, dryRun, signal, tell: (change) => say(describeChange(change, dryRun)) }
  if (!init.force) await requireImage(admin, imageQuestion(init.values, init.values.member.namespace, 'every'), init)
  await applyCrds(context)
  if (!dryRun) await until(init, 'the new kinds to be served', () => crdsMissing(admin, signal))
  await install(plan, context, { ...init, secret, known })
  await applyObjects(adviceObjects(given), context)
  if (!dryRun) await watchStart(plan, admin, { ...init, secret })
  // Now: while pods start, the cluster's DNS reads its settings.
  const dns = await wireClusterDns(admin, discovery, { ...init, dryRun })
  const others = dryRun ? { reached: [], alone: true } : await watchParts(plan, admin, { ...init, dns })
  // What somebody has to do by hand first is not waited for.
  const late = dryRun || dns.left.length > 0 ? undefined : await watchClusterDns(admin, plan.clusterId, init)
  return { plan, advice: given, dns: late === undefined ? dns : { left: [late] }, others }
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
    return await watchLanes(plan, admin, init)
  } catch (error) {
    for (const line of init.dns.left) init.say(`cluster DNS: ${line}\n`)
    throw error
  }
}

/** What Sealane does itself for this kind of cluster. */
export function adviceObjects(given: readonly Advice[]): readonly ManifestObject[] {
  return given.flatMap(({ objects }) => objects as readonly ManifestObject[])
}

type InstallInit = JoinClusterInit & { readonly secret: SecretAccess; readonly known: MemberIdentity | undefined }

async function install(plan: JoinPlan, context: ApplyContext, init: InstallInit): Promise<void> {
  const { dryRun } = context
  const first = plan.objects.filter(({ kind }) => kind === 'Namespace')
  await applyObjects(first, context)
  await applyNodes(plan.nodes, context)
  if (!dryRun && init.token !== undefined) await bringToken(init.secret, init, init.token)
  await applyObjects(
    plan.objects.filter((object) => !first.includes(object)),
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
  await until(init, 'the broker to take this cluster in', () =>
    joinProgress(admin, { secret, settings: site, namespace, nowMs: clock.now() }, signal),
  )
  // One lies there still where the agent had another one, and was faster.
  await until(init, 'the token to go', async () => {
    await secretIdentity(secret).dropToken()
    return undefined
  })
  say('joined\n')
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
