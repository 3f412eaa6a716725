/**
 * `sealane join --context`: looks at a cluster, says what it found, installs, leaves the token for the agent, and waits
 * until lanes are up. Each step can be repeated: a join that broke off is finished by the same command.
 */
import type { DynamicClient } from '../../cluster/kube/dynamic-client.ts'
import type { ManifestObject } from '../../install/manifest-object.ts'
import type { InstallValues } from '../../install/values.ts'
import { IDENTITY_SECRET, IDENTITY_SECRET_TYPE, partLabels } from '../../install/names.ts'
import { type ClusterId, parseClusterId } from '../../model/ids.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type Advice, advice, hindrances } from '../discovery/advice.ts'
import { describeAdvice, describeDiscovery } from '../discovery/describe.ts'
import { type Ask, type Discovery, discover } from '../discovery/discover.ts'
import { readSnapshot } from '../discovery/read-snapshot.ts'
import { secretIdentity } from '../secret-identity.ts'
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
import { checkRights } from './check-rights.ts'
import { type ClusterDnsOutcome, wireClusterDns } from './wire-cluster-dns.ts'
import { type JoinPlan, type JoinWishes, idFromName, openQuestions, planJoin } from './plan-join.ts'
import { secretAccess } from './secret-access.ts'
import { snapshotReader } from './snapshot-reader.ts'
import { type Missing, waitUntil } from './wait-until.ts'
import { joinProgress, lanesProgress, rolloutProgress } from './watch-join.ts'

export interface JoinClusterInit {
  /** Undefined: everything but the token, as for GitOps. */
  readonly token: string | undefined
  readonly wishes: JoinWishes
  readonly values: InstallValues
  readonly dryRun: boolean
  /** Joins although something is known not to work. */
  readonly force: boolean
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
  /** Ids of the clusters that are reached. */
  readonly others: readonly string[]
}

export interface PreparedJoin {
  readonly plan: JoinPlan
  readonly discovery: Discovery
  readonly advice: readonly Advice[]
}

/** What was found, decided and asked, before anything is changed. Throws UserError, TokenError. */
export async function prepareJoin(
  { admin, dynamic }: { readonly admin: ClusterAdmin; readonly dynamic: DynamicClient },
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
  const clusterId = chooseId(wishes, discovery, admin)
  return { plan: planJoin(discovery, { ...wishes, clusterId }, init.values), discovery, advice: given }
}

/** Throws UserError with what stands in the way; what is done stays done. */
export async function joinCluster(
  open: { readonly admin: ClusterAdmin; readonly dynamic: DynamicClient },
  init: JoinClusterInit,
): Promise<JoinedCluster> {
  const { admin } = open
  const { signal, dryRun, say } = init
  await checkRights(admin, init.values.member.namespace, signal)
  const { plan, discovery, advice: given } = await prepareJoin(open, init)
  const context: ApplyContext = { admin, dryRun, signal, tell: (change) => say(describeChange(change, dryRun)) }
  await applyCrds(context)
  if (!dryRun) await until(init, 'the new kinds to be served', () => crdsMissing(admin, signal))
  await install(plan, context, { ...init, leaving: discovery.earlier.state === 'leaving' })
  await applyObjects(adviceObjects(given), context)
  if (!dryRun) await watchStart(plan, admin, init)
  const dns = await wireClusterDns(admin, discovery, { ...init, dryRun })
  const others = dryRun ? [] : await watchLanes(plan, admin, init)
  return { plan, advice: given, dns, others }
}

/** What Sealane does itself for this kind of cluster. */
export function adviceObjects(given: readonly Advice[]): readonly ManifestObject[] {
  return given.flatMap(({ objects }) => objects as readonly ManifestObject[])
}

type InstallInit = JoinClusterInit & { readonly leaving: boolean }

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

async function bringToken(admin: ClusterAdmin, init: InstallInit, token: string, signal: AbortSignal) {
  const secret = identitySecret(admin, init, signal)
  const known = await secretIdentity(secret).read()
  const { clusterset } = parseJoinToken(token, init.clock.now())
  if (known !== undefined && known.clusterset !== clusterset) {
    throw new UserError(`${admin.title} is already joined as ${known.cluster} in clusterset ${known.clusterset}`, {
      hint: 'leave first: sealane leave --context NAME',
    })
  }
  // With its identity it would be taken for joined, while every part takes itself out.
  if (known !== undefined && init.leaving) {
    throw new UserError(`${admin.title} is leaving clusterset ${known.clusterset}: the broker is not told yet`, {
      hint: 'finish that first: sealane leave --context NAME; with --force where the broker is gone for good',
    })
  }
  if (known !== undefined) init.say(`already joined as ${known.cluster}: the token is not used\n`)
  else await leaveToken(secret, token)
}

async function watchStart({ site }: JoinPlan, admin: ClusterAdmin, init: JoinClusterInit): Promise<void> {
  const { values, signal, say } = init
  const { namespace } = values.member
  const secret = identitySecret(admin, init, signal)
  await until(init, 'the broker to take this cluster in', () =>
    joinProgress(admin, { secret, settings: site, namespace }, signal),
  )
  say('joined\n')
  await until(init, 'parts to be ready', () => rolloutProgress(admin, namespace, signal))
  say('all parts are ready\n')
}

/** Gives the clusters that are reached: all there are. */
async function watchLanes({ gateways }: JoinPlan, admin: ClusterAdmin, init: JoinClusterInit): Promise<string[]> {
  let others: readonly string[] = []
  await until(init, 'lanes', async () => {
    const { reached, missing } = await lanesProgress(admin, gateways, init.signal)
    others = reached
    return missing
  })
  if (others.length > 0) init.say(`lanes are up, and probes pass: ${others.join(', ')}\n`)
  return [...others]
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
function chooseId(wishes: JoinWishes, discovery: Discovery, admin: ClusterAdmin): ClusterId {
  const earlier = discovery.earlier.clusterId
  if (wishes.clusterId !== undefined) {
    if (earlier !== undefined && earlier !== wishes.clusterId) {
      throw new UserError(`--cluster-id ${wishes.clusterId}: this cluster is a member already, as ${earlier}`, {
        hint: 'leave first: sealane leave --context NAME',
      })
    }
    return wishes.clusterId
  }
  const id = earlier ?? idFromName(admin.contextName)
  if (id === undefined)
    throw new UserError(`no cluster id follows from ${admin.title}: say --cluster-id`, { exitCode: 2 })
  return parseClusterId(id)
}
