/**
 * The questions of a join: the id of the cluster, facts that could not be detected, and permission to change an
 * existing installation.
 */
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
  readonly plan: Pick<JoinPlan, 'objects' | 'nodes' | 'removed'>
  readonly discovery: Discovery
  readonly live: InstalledObjects
  /** The objects that are created in addition to the plan for this kind of cluster. */
  readonly made: readonly ManifestObject[]
  /** The marks of the CRDs. Undefined if there are none. */
  readonly marks?: Marks
  readonly secrets?: readonly SecretMarkChange[]
}

export interface AgreeInit {
  readonly dryRun: boolean
  /** Asks the user. Undefined if the user is not asked. */
  readonly confirm?: ((question: string) => Promise<boolean>) | undefined
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/**
 * Returns whether an object is to be applied: all objects if nothing is installed yet. Throws UserError if the user
 * declines.
 */
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
  if (changes.length === 0) say('no changes: the installation is up to date\n')
  else say(`changes (${same} objects are unchanged):\n${changes.map(describePlanned).join('')}`)
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
    ...plan.removed.map((object): PlannedChange => ({ ref: refOf(object), how: 'remove', lines: [] })),
    ...(await previewClusterDns(admin, discovery, init)),
  ]
}

// Asks the user for facts that could not be detected in the cluster.

interface Answering {
  /** The options that are known. */
  readonly chosen: JoinOptions
  /** Asks the user. Undefined if there is no terminal. */
  readonly ask: ((question: Ask) => Promise<readonly string[]>) | undefined
}

/** Throws UserError, which names the flag to use, if there is no terminal. */
export async function answered(asks: readonly Ask[], { chosen, ask }: Answering): Promise<JoinOptions> {
  let answers = chosen
  for (const question of asks) {
    if (ask === undefined) throw new UserError(`${question.why}: use ${flagText(question)}`, { exitCode: 2 })
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

/** The flag, and how it would be used for what was suggested. */
function flagText({ field, suggestion }: Ask): string {
  const [flag = ''] = FLAGS[field].split(' ')
  if (suggestion.length === 0) return FLAGS[field]
  return `${FLAGS[field]}, perhaps ${suggestion.map((value) => `${flag} ${value}`).join(' ')}`
}

// Chooses the id under which a cluster joins.

interface IdWorld {
  readonly discovery: Discovery
  readonly live: InstalledObjects
  readonly values: InstallValues
}

/** The requested id, else that of an earlier join, else the name of the context. Throws UserError, InvalidNameError. */
export function chooseId(
  chosen: JoinOptions,
  { discovery, live, values }: IdWorld,
  admin: Pick<ClusterAdmin, 'title' | 'contextName'>,
  flags: string,
): ClusterId {
  const earlier = discovery.earlier.clusterId
  if (chosen.clusterId !== undefined) {
    if (earlier !== undefined && earlier !== chosen.clusterId) {
      throw new UserError(`--cluster-id ${chosen.clusterId}: this cluster is already a member, as ${earlier}`, {
        hint: `leave first: sealane leave ${flags}`,
      })
    }
    return chosen.clusterId
  }
  const id = earlier ?? installedSite(values, live)?.name ?? idFromName(admin.contextName)
  if (id === undefined)
    throw new UserError(`no cluster id can be derived from ${admin.title}: use --cluster-id`, { exitCode: 2 })
  return parseClusterId(id)
}
