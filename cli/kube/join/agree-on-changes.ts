/** What a join asks: which id the cluster gets, what nobody could find out, and whether it may change what is there. */
import type { ManifestObject } from '../../../install/manifest-object.ts'
import type { Marks } from '../../../install/marks/marks.ts'
import { type ObjectRef, refOf, titleOf } from '../../../kubeapi/kube/write/object-ref.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/user-error.ts'
import type { Discovery } from '../../discovery/discover.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import type { SecretMarkChange } from '../marks/mark-secrets.ts'
import { NO_MARKS } from '../marks/marked-crds.ts'
import type { JoinPlan } from './plan-join.ts'
import type { InstalledObjects } from './plan-installed-values.ts'
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
