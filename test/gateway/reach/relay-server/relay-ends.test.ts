import t from 'tap'
import { planRelayEnds } from '../../../../gateway/reach/relay-server/plan-relay-ends.ts'
import { wireguardRules } from '../../../../gateway/cable/wireguard/plan-device.ts'
import type { Endpoint } from '../../../../model/objects.ts'
import { endpoint, key } from '../../support/worlds.ts'

function rotating(one: Endpoint, nextPublicKey: string): Endpoint {
  return { ...one, spec: { ...one.spec, nextPublicKey } }
}

const MEMBERS = ['aachen', 'bern', 'oslo', 'paris', 'rome']

const ends = (endpoints: readonly Endpoint[], accepted: readonly string[] = MEMBERS): string[] =>
  planRelayEnds(endpoints, new Set(accepted), wireguardRules).map(({ member, identity }) => `${member} ${identity}`)

t.test('each gateway of each member, with the identity that it is about to take', async (t) => {
  const oslo = rotating(endpoint('oslo', 'gw', 0, []), key('next'))
  const paris = [endpoint('paris', 'gw0', 0, []), endpoint('paris', 'gw1', 1, [])]
  t.strictSame(ends([...paris, oslo]), [
    `oslo ${key('oslo0')}`,
    `paris ${key('paris0')}`,
    `paris ${key('paris1')}`,
    `oslo ${key('next')}`,
  ])
})

t.test('members with which there may be no link', async (t) => {
  const all = [endpoint('oslo', 'gw', 0, []), endpoint('paris', 'gw', 0, [])]
  t.strictSame(ends(all, ['oslo']), [`oslo ${key('oslo0')}`])
  t.strictSame(ends([endpoint('bern', 'gw', 0, [], key('oslo0')), ...all], ['oslo']), [`oslo ${key('oslo0')}`])
})

t.test('identities that cannot be used, or that another one has', async (t) => {
  const oslo = endpoint('oslo', 'gw', 0, [])
  t.strictSame(ends([endpoint('paris', 'gw', 0, [], 'no key')]), [])
  t.strictSame(ends([oslo, endpoint('rome', 'gw', 0, [], key('oslo0'))]), [`oslo ${key('oslo0')}`])
  t.strictSame(
    ends([rotating(endpoint('bern', 'gw', 0, []), key('oslo0')), oslo]),
    [`bern ${key('bern0')}`, `oslo ${key('oslo0')}`],
    'announced by an Endpoint with an earlier name',
  )
  t.strictSame(ends([rotating(oslo, 'no key')]), [`oslo ${key('oslo0')}`])
})

t.test('a member with very many Endpoints has as many ends as lanes can have', async (t) => {
  const many = Array.from({ length: 40 }, (_, i) => endpoint('aachen', `gw${i}`, 0, [], key(`many${i}`)))
  const found = ends([...many, endpoint('oslo', 'gw', 0, [])])
  t.equal(found.filter((one) => one.startsWith('aachen')).length, 16)
  t.ok(found.includes(`oslo ${key('oslo0')}`))
})
