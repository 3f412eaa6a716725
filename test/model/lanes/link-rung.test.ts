import t from 'tap'
import { linkRung } from '../../../model/lanes/lanes.ts'
import type { Endpoint, EndpointCandidate } from '../../../model/model.ts'

const at = (...kinds: EndpointCandidate['kind'][]): Endpoint => {
  const candidates = kinds.map((kind, i) => ({ kind, address: `192.0.2.${i + 1}`, port: 4500 }))
  return { spec: { candidates, lane: 0, capabilities: ['wireguard'] } } as unknown as Endpoint
}
const OPEN = at('public', 'private')
const HIDDEN = at('private', 'observed')
const MAPPED: Endpoint = { ...HIDDEN, spec: { ...HIDDEN.spec, capabilities: ['port-mapped'] } }
const SECOND: Endpoint = { ...HIDDEN, spec: { ...HIDDEN.spec, lane: 1 } }
const HERE = { usingAddress: '192.0.2.9:40000', usingNat: true }

t.test('the rung of a link', async (t) => {
  const cases: readonly (readonly [string | undefined, ...Parameters<typeof linkRung>])[] = [
    [undefined, { usingNat: false }, HIDDEN, HIDDEN],
    ['relayed', { ...HERE, usingRelay: 'milano' }, HIDDEN, HIDDEN],
    ['punched', HERE, HIDDEN, HIDDEN],
    ['port-mapped', { ...HERE, usingAddress: '192.0.2.2:4500' }, HIDDEN, MAPPED],
    ['port-mapped', { ...HERE, usingAddress: '192.0.2.2:4501' }, SECOND, MAPPED],
    ['punched', { ...HERE, usingAddress: '192.0.2.2:4500' }, SECOND, MAPPED],
    ['punched', HERE, HIDDEN, MAPPED],
    ['punched', HERE, MAPPED, MAPPED],
    ['port-mapped', HERE, MAPPED, HIDDEN],
    ['direct', HERE, OPEN, MAPPED],
    ['direct', { ...HERE, usingNat: false }, HIDDEN, MAPPED],
    ['relayed', { ...HERE, usingRelay: 'milano' }, HIDDEN, MAPPED],
    ['tcp-443', { ...HERE, usingRelay: 'tcp-443 relay.example' }, HIDDEN, HIDDEN],
    ['tcp-443', { ...HERE, usingRelay: 'tcp-443' }, HIDDEN, HIDDEN],
    // A member of this name relays.
    ['relayed', { ...HERE, usingRelay: 'tcp-443-lab' }, HIDDEN, HIDDEN],
    ['direct', { ...HERE, usingNat: false }, HIDDEN, HIDDEN],
    ['direct', HERE, OPEN, HIDDEN],
    ['direct', HERE, HIDDEN, OPEN],
    ['direct', HERE, undefined, HIDDEN],
  ]
  for (const [want, ...init] of cases) t.equal(linkRung(...init), want)
})
