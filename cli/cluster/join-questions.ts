/** What a join asks: which id the cluster gets, what nobody could find out, and whether it may change what is there. */
import type { InstallValues, ManifestObject, Marks } from '../../install/values/values.ts'
import { type ObjectRef, refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import { type ClusterId, parseClusterId } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ClusterAdmin } from '../context/context.ts'
import type { Ask, Discovery } from '../discovery/discovery.ts'
import { type InstalledObjects, NO_MARKS, type SecretMarkChange } from '../installation/installation.ts'
import { type JoinOptions, type JoinPlan, idFromName, installedSite } from './plan-join.ts'
import {
  type PlannedChange,
  describePlanned,
  previewCrds,
  previewNodes,
  previewObjects,
  previewSecretMarks,
} from './preview-changes.ts'
import { previewClusterDns } from './wire-cluster-dns.ts'

export interface PlannedJoin {
  readonly plan: Pick<JoinPlan, 'objects' | 'nodes'>
  readonly discovery: Discovery
  readonly live: InstalledObjects
  /** What is made beside the plan for this kind of cluster. */
  readonly made: readonly ManifestObject[]
  /** Of CRDs; absent: none. */
  readonly marks?: Marks
  readonly secrets?: readonly SecretMarkChange[]
}

export interface AgreeInit {
  readonly dryRun: boolean
  /** Undefined: nobody is asked. */
  readonly confirm?: ((question: string) => Promise<boolean>) | undefined
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/** Gives what is to be applied: all where nothing is installed yet. Throws UserError where a person says no. */
export async function agreeOnChanges(
  admin: ClusterAdmin,
  planned: PlannedJoin,
  init: AgreeInit,
): Promise<(ref: ObjectRef) => boolean> {
  const { say, dryRun, confirm } = init
  if (!dryRun && planned.live.size === 0) return () => true
  const changes = await plannedChanges(admin, planned, init)
  const changed = new Set(changes.map(({ ref }) => titleOf(ref)))
  const isChanged = (ref: ObjectRef): boolean => changed.has(titleOf(ref))
  const same = planned.plan.objects.filter((object) => !isChanged(refOf(object))).length
  if (changes.length === 0) say('nothing differs from what is installed\n')
  else say(`changes (${same} objects stay as they are):\n${changes.map(describePlanned).join('')}`)
  const isAsked = !dryRun && changes.length > 0 && confirm !== undefined
  if (isAsked && !(await confirm('Make these changes'))) throw new UserError('nothing was changed')
  return isChanged
}

async function plannedChanges(
  admin: ClusterAdmin,
  { plan, discovery, made, marks = NO_MARKS, secrets = [] }: PlannedJoin,
  init: AgreeInit,
): Promise<readonly PlannedChange[]> {
  const { signal } = init
  return [
    ...(await previewCrds(admin, marks, signal)),
    ...previewSecretMarks(secrets),
    ...(await previewNodes(admin, plan.nodes, signal)),
    ...(await previewObjects(admin, [...plan.objects, ...made], signal)),
    ...(await previewClusterDns(admin, discovery, init)),
  ]
}

// What looking at a cluster could not tell: a person is asked.

interface Answering {
  /** What is known. */
  readonly chosen: JoinOptions
  /** Asks a person; undefined where nobody can be asked. */
  readonly ask: ((question: Ask) => Promise<readonly string[]>) | undefined
}

/** Throws UserError with the flag that says it, where nobody can be asked. */
export async function answered(asks: readonly Ask[], { chosen, ask }: Answering): Promise<JoinOptions> {
  let answers = chosen
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

// Under which id a cluster joins.

interface IdWorld {
  readonly discovery: Discovery
  readonly live: InstalledObjects
  readonly values: InstallValues
}

/** What was said; else what an earlier join used; else the context's name. Throws UserError, InvalidNameError. */
export function chooseId(
  chosen: JoinOptions,
  { discovery, live, values }: IdWorld,
  admin: Pick<ClusterAdmin, 'title' | 'contextName'>,
  flags: string,
): ClusterId {
  const earlier = discovery.earlier.clusterId
  if (chosen.clusterId !== undefined) {
    if (earlier !== undefined && earlier !== chosen.clusterId) {
      throw new UserError(`--cluster-id ${chosen.clusterId}: this cluster is a member already, as ${earlier}`, {
        hint: `leave first: sealane leave ${flags}`,
      })
    }
    return chosen.clusterId
  }
  const id = earlier ?? installedSite(values, live)?.name ?? idFromName(admin.contextName)
  if (id === undefined)
    throw new UserError(`no cluster id follows from ${admin.title}: say --cluster-id`, { exitCode: 2 })
  return parseClusterId(id)
}
