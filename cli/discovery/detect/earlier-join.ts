/** What an earlier join was given, or found: nobody is asked the same again. */
import { type Evidence, networks } from '../evidence.ts'
import { prefixesIn } from '../snapshot/prefix-texts.ts'
import { at, documentIn, keysAt, nameOf, textAt, textsAt } from '../snapshot/raw.ts'
import { type World, configText, pathOf } from '../snapshot/snapshot.ts'

const SITE = ['sealane-system/sealane-site'] as const

interface EarlierFacts {
  readonly spec: unknown
  /** Where they were found, for the account. */
  readonly where: string
}

/** The site file; where the namespace was deleted with it, this cluster's own Cluster object. */
function earlierFacts(world: World): EarlierFacts | undefined {
  const found = configText(world, SITE, ['site.yaml'])
  if (found !== undefined) return { spec: at(documentIn(found.text), 'spec'), where: found.where }
  const own = textAt(world.list('Membership', 'sealane.io')[0], 'spec', 'clusterId')
  const cluster = world.list('Cluster', 'sealane.io').find((one) => own !== undefined && nameOf(one) === own)
  return cluster === undefined ? undefined : { spec: at(cluster, 'spec'), where: pathOf(cluster) }
}

/** Above whatever is as certain: where a cluster has grown, that is reported, and stated when a flag says so. */
export function earlierJoin(world: World): Evidence[] {
  const found = earlierFacts(world)
  if (found === undefined) return []
  return (['podCIDRs', 'serviceCIDRs'] as const).flatMap((field) =>
    networks(field, prefixesIn(textsAt(found.spec, field)), 'certain', `the earlier join (${found.where})`),
  )
}

/** The labels that it gave to this cluster. */
export function earlierLabels(world: World): Readonly<Record<string, string>> {
  const labels = at(earlierFacts(world)?.spec, 'labels')
  return Object.fromEntries(
    keysAt(labels).flatMap((key): [string, string][] => {
      const value = textAt(labels, key)
      return value === undefined ? [] : [[key, value]]
    }),
  )
}
