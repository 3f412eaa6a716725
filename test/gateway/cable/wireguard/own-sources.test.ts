/** Which peers get their endpoint set again because this node sends from another address than before. */
import t from 'tap'
import { OwnSources } from '../../../../gateway/cable/wireguard/wireguard-cable.ts'
import type { DeviceState } from '../../../../kernel/wireguard/wireguard-device.ts'
import { key, peerState } from '../../support/worlds.ts'

const PARIS = '198.51.100.20:4500'
const ELSEWHERE = '203.0.113.77:61234'

type KernelLook = readonly [say: string, endpoint: string | undefined, from: string | undefined, moved: boolean]

const STORIES: readonly (readonly KernelLook[])[] = [
  [
    ['seen first', PARIS, '192.0.2.10', false],
    ['the same', PARIS, '192.0.2.10', false],
    ['from another address', PARIS, '192.0.2.77', true],
    ['once', PARIS, '192.0.2.77', false],
    ['and back', PARIS, '192.0.2.10', true],
  ],
  [
    ['seen first', PARIS, '192.0.2.10', false],
    ['the way is gone for a moment', PARIS, undefined, false],
    ['and for another', PARIS, undefined, false],
    ['it is back, from another address', PARIS, '192.0.2.77', true],
  ],
  [
    ['seen first', PARIS, '192.0.2.10', false],
    ['it roamed: the device knows from where it is reached', ELSEWHERE, '192.0.2.77', false],
    ['now it is there', ELSEWHERE, '192.0.2.10', true],
  ],
  [
    ['it has no place yet', undefined, undefined, false],
    ['it has one', PARIS, '192.0.2.10', false],
    ['it was made anew', undefined, undefined, false],
    ['and has one again', PARIS, '192.0.2.77', false],
  ],
]

t.test('stories', async (t) => {
  for (const looks of STORIES) {
    const sources = new OwnSources()
    for (const [say, endpoint, from, moved] of looks) {
      t.equal(look(sources, endpoint, from).has(key('paris')), moved, say)
      sources.reported()
    }
  }
})

t.test('what the device was not told of is given again', async (t) => {
  const sources = new OwnSources()
  look(sources, PARIS, '192.0.2.10')
  sources.reported()
  t.equal(look(sources, PARIS, '192.0.2.77').size, 1, 'the round failed')
  t.equal(look(sources, PARIS, '192.0.2.77').size, 1)
  sources.reported()
  t.equal(look(sources, PARIS, '192.0.2.77').size, 0)
})

function look(sources: OwnSources, endpoint: string | undefined, from: string | undefined): ReadonlySet<string> {
  const peers = [peerState(key('paris'), endpoint === undefined ? {} : { endpoint })]
  const device: DeviceState = { name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers }
  const host = endpoint?.split(':')[0] ?? ''
  return sources.moved([device], new Map(from === undefined ? [] : [[host, from]]))
}
