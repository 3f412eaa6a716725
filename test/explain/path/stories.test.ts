/** One call that arrives, one that is refused, and one that ends at a dead link, as people read them. */
import t from 'tap'
import { pathText } from '../../../cli/status/path/path-text.ts'
import type { AccessPolicy } from '../../../model/objects.ts'
import { equalsGolden } from '../../support/golden.ts'
import { DOWN, changeLinks } from '../broken-member.ts'
import { explained, pathObjects } from './two-members.ts'

t.test('it arrives, across two translations', async (t) => {
  const found = explained()
  t.equal(found.outcome, 'REACHABLE')
  t.equal(found.failing, undefined)
  equalsGolden(t, pathText(found, true), 'explain/reachable.txt')
})

const ONLY_TOKYO: AccessPolicy = {
  ...{ apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy', metadata: { name: 'few', namespace: 'shop' } },
  spec: { from: [{ clusters: ['tokyo'] }] },
}

t.test('the exporter does not offer it', async (t) => {
  const found = explained({
    here: (at) => void (at('ServiceImport').length = 0),
    farObjects: pathObjects('paris', [ONLY_TOKYO]),
  })
  t.match(found, { outcome: 'UNREACHABLE', failing: { station: 'access', reason: 'CallsNotAllowed' } })
  equalsGolden(t, pathText(found, false), 'explain/refused.txt')
})

t.test('no link is up', async (t) => {
  const found = explained({ here: (at) => changeLinks(at, () => true, DOWN) })
  t.match(found, { outcome: 'UNREACHABLE', failing: { station: 'link' } })
  equalsGolden(t, pathText(found, false), 'explain/dead-link.txt')
})
