/** Reads the objects of an earlier installation from a cluster, and describes what a join changes about them. */
import type { InstallValues, ManifestObject } from '../../install/values/values.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { type ObjectRef, refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { at, listAt, textAt } from '../discovery/discovery.ts'
import { type InstalledObjects, installedRefs } from '../installation/installation.ts'
import type { JoinPlan } from './plan-join.ts'

/** Every object of Sealane that exists. Throws KubeError. */
export async function readInstalled(
  admin: Pick<ClusterAdmin, 'get'>,
  values: InstallValues,
  signal: AbortSignal,
): Promise<InstalledObjects> {
  const refs = installedRefs(values).map(refOf)
  const found = await Promise.all(refs.map((ref) => getIfServed(admin, ref, signal)))
  return new Map(found.flatMap((object) => (object === undefined ? [] : [[titleOf(refOf(object)), object] as const])))
}

/** Undefined also if the server does not serve the kind: not every cluster has the kinds of the Prometheus Operator. */
async function getIfServed(
  admin: Pick<ClusterAdmin, 'get'>,
  ref: ObjectRef,
  signal: AbortSignal,
): Promise<ManifestObject | undefined> {
  try {
    return await admin.get(ref, signal)
  } catch (error) {
    if (error instanceof ClusterApiError && error.code === 'NotFound') return undefined
    throw error
  }
}

// Describes what a join means for a cluster with an existing installation. Pure.

/** `c2 is a member already: upgrades from …`. Empty for a first join. */
export function describeInstalled(
  { clusterId, objects }: Pick<JoinPlan, 'clusterId' | 'objects'>,
  live: InstalledObjects,
  isMember: boolean,
): string {
  const before = imagesOf([...live.values()])
  if (before.length === 0) return ''
  const after = imagesOf(objects)
  const same = before.join() === after.join()
  const what = same ? `repair of missing or changed objects; image ${after.join(', ')}` : upgrade(before, after)
  return `${clusterId} ${isMember ? 'is already a member' : 'is already installed, but not a member yet'}: ${what}\n`
}

function upgrade(before: readonly string[], after: readonly string[]): string {
  return `upgrade from image ${before.join(', ')} to ${after.join(', ')}`
}

/** The images without duplicates, sorted. */
function imagesOf(objects: readonly ManifestObject[]): readonly string[] {
  const images = objects.flatMap((object) =>
    listAt(at(object, 'spec', 'template', 'spec'), 'containers')
      .filter((container) => object.metadata.name === `sealane-${textAt(container, 'name') ?? ''}`)
      .flatMap((container) => textAt(container, 'image') ?? []),
  )
  return [...new Set(images)].sort()
}
