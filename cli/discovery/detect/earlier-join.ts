/** What an earlier join was told, or found: nobody is asked the same again. */
import { type Claim, networks } from '../claim.ts'
import { prefixesIn } from '../prefix-texts.ts'
import { at, documentIn, keysAt, textAt, textsAt } from '../raw.ts'
import { type World, configText } from '../snapshot.ts'

const SITE = ['sealane-system/sealane-site'] as const

/** Below whatever is as certain: a cluster may have grown. */
export function earlierJoin(world: World): Claim[] {
  const found = configText(world, SITE, ['site.yaml'])
  if (found === undefined) return []
  const site = documentIn(found.text)
  return (['podCIDRs', 'serviceCIDRs'] as const).flatMap((field) =>
    networks(field, prefixesIn(textsAt(site, 'spec', field)), 'certain', `the earlier join (${found.where})`),
  )
}

/** The labels that it gave to this cluster. */
export function earlierLabels(world: World): Readonly<Record<string, string>> {
  const labels = at(documentIn(configText(world, SITE, ['site.yaml'])?.text), 'spec', 'labels')
  return Object.fromEntries(
    keysAt(labels).flatMap((key): [string, string][] => {
      const value = textAt(labels, key)
      return value === undefined ? [] : [[key, value]]
    }),
  )
}
