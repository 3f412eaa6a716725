/** A gateway whose public address is a DNS name: what it publishes while the name, and the links, change. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { findCondition } from '../../model/conditions.ts'
import { PARIS, PARIS_GW, Stage } from './support/stage.ts'

const NAME = 'gw.example.org'

class Names {
  readonly asked: number[] = []
  answer: readonly string[] | Error | 'silent' = ['203.0.113.7']

  constructor(stage: Stage) {
    stage.resolveName = async (name) => {
      this.asked.push(stage.clock.monotonic())
      t.equal(name, NAME)
      if (this.answer === 'silent') return new Promise(() => undefined)
      if (this.answer instanceof Error) throw this.answer
      return this.answer
    }
  }
}

function started(t: Test): { readonly stage: Stage; readonly names: Names } {
  const stage = new Stage(t)
  const names = new Names(stage)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  start(stage)
  return { stage, names }
}

function start(stage: Stage): void {
  stage.start({ lanes: [{ lane: 0, publicAddress: NAME, publicPort: 51820 }] })
}

function published(stage: Stage): readonly string[] {
  const candidates = stage.ownEndpoint()?.spec.candidates ?? []
  return candidates.filter(({ kind }) => kind === 'public').map(({ address, port }) => `${address}:${port}`)
}

function condition(stage: Stage): string {
  const found = findCondition(stage.gateway()?.conditions, 'PublicNameResolved')
  return found === undefined ? '' : `${found.status} ${found.reason} ${found.message}`
}

const notFound = Object.assign(new Error(`getaddrinfo ENOTFOUND ${NAME}`), { code: 'ENOTFOUND' })

t.test('the address changes overnight: asked at once when the link goes down', async (t) => {
  const { stage, names } = started(t)
  await stage.until(() => published(stage).join() === '203.0.113.7:51820', 'told')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  await stage.until(() => condition(stage).startsWith('True'), 'said')
  t.equal(condition(stage), 'True PublicNameResolved gw.example.org: 203.0.113.7')
  await stage.passSlowly(70_000)
  const calm = names.asked.length
  await stage.passSlowly(70_000)
  t.ok(names.asked.length - calm <= 2, 'once a minute while all is well')

  names.answer = ['203.0.113.99']
  stage.probes.alive.delete('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'down', 'down')
  const downMs = stage.clock.monotonic()
  await stage.until(() => published(stage).join() === '203.0.113.99:51820', 'the new one')
  t.ok(stage.clock.monotonic() - downMs < 10_000, 'at once')
})

t.test(
  'a name that no longer resolves, or resolves to what cannot be: the last address stays, also after a restart',
  async (t) => {
    const { stage, names } = started(t)
    await stage.until(() => published(stage).join() === '203.0.113.7:51820', 'told')
    const rows: readonly (readonly [answer: Names['answer'], said: string])[] = [
      [
        notFound,
        'False PublicNameUnresolved gw.example.org: no such name, or it has no address; published: 203.0.113.7',
      ],
      [[], 'False PublicNameUnresolved gw.example.org has no address; published: 203.0.113.7'],
      [
        ['127.0.0.1', '169.254.1.1', '10.42.0.9'],
        'False PublicNameUnusable gw.example.org has addresses that others cannot call: 127.0.0.1 (loopback), 169.254.1.1 (link-local), 10.42.0.9 (inside the lanes); published: 203.0.113.7',
      ],
      ['silent', 'False PublicNameUnresolved gw.example.org: no answer within 10 s; published: 203.0.113.7'],
    ]
    for (const [answer, said] of rows) {
      names.answer = answer
      await stage.until(() => condition(stage) === said, `${said}, not ${condition(stage)}`, 50)
      t.strictSame(published(stage), ['203.0.113.7:51820'])
    }
    t.match(stage.logger.messages('warn'), ['refused'])
    await stage.stop()
    t.match(JSON.parse(readFileSync(join(stage.stateDir, 'public-name.json'), 'utf8')), {
      name: NAME,
      addresses: ['203.0.113.7'],
    })

    names.answer = notFound
    stage.objects.drop('Endpoint', 'milano.gw-lane0')
    start(stage)
    await stage.until(() => published(stage).length > 0, 'told again')
    t.strictSame(published(stage), ['203.0.113.7:51820'])
    await stage.stop()

    stage.start({ lanes: [{ lane: 0 }] })
    await stage.until(() => published(stage).length === 0, 'the name was taken off')
    await stage.until(() => condition(stage) === '', 'and its condition')
  },
)
