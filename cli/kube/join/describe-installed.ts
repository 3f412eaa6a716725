/** What a join means for a cluster where something is installed already. Pure. */
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { at, listAt, textAt } from '../../discovery/snapshot/raw.ts'
import type { JoinPlan } from './plan-join.ts'
import type { InstalledObjects } from './plan-installed-values.ts'

/** `c2 is a member already: upgrades from …`; empty for a first join. */
export function describeInstalled(
  { clusterId, objects }: Pick<JoinPlan, 'clusterId' | 'objects'>,
  live: InstalledObjects,
  isMember: boolean,
): string {
  const before = imagesOf([...live.values()])
  if (before.length === 0) return ''
  const after = imagesOf(objects)
  const same = before.join() === after.join()
  const what = same ? `repairs what is missing or differs; image ${after.join(', ')}` : upgrade(before, after)
  return `${clusterId} ${isMember ? 'is a member already' : 'is installed already, and no member yet'}: ${what}\n`
}

function upgrade(before: readonly string[], after: readonly string[]): string {
  return `goes from image ${before.join(', ')} to ${after.join(', ')}`
}

/** Each once, sorted. */
function imagesOf(objects: readonly ManifestObject[]): readonly string[] {
  const images = objects.flatMap((object) =>
    listAt(at(object, 'spec', 'template', 'spec'), 'containers')
      .filter((container) => object.metadata.name === `sealane-${textAt(container, 'name') ?? ''}`)
      .flatMap((container) => textAt(container, 'image') ?? []),
  )
  return [...new Set(images)].sort()
}
