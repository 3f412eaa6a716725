import { spawnSync } from 'node:child_process'
import t from 'tap'
import { NftSession } from '../../kernel/nft/nft-session.ts'
import { nftCompliance } from '../compliance/nft.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  const sessions: NftSession[] = []
  t.teardown(() => sessions.forEach((session) => session.close()))
  const session = (): NftSession => {
    const made = new NftSession()
    sessions.push(made)
    return made
  }
  nftCompliance(t, session)

  t.test('many changes at once are made one after the other, refused ones among them', async (t) => {
    const nft = session()
    await nft.run([
      { verb: 'add-table', table: 'sealane_many' },
      { verb: 'add-map', table: 'sealane_many', map: 'm', type: { kind: 'set', key: 'ipv4_addr' } },
    ])
    const add = (i: number) =>
      ({ verb: 'add-elements', table: 'sealane_many', map: 'm', elements: [{ key: `192.0.2.${i}` }] }) as const
    const gone = {
      verb: 'delete-elements',
      table: 'sealane_many',
      map: 'm',
      elements: [{ key: '192.0.2.250' }],
    } as const
    const results = await Promise.allSettled(
      Array.from({ length: 60 }, (_, i) => nft.run(i % 10 === 9 ? [add(i), gone] : [add(i)])),
    )
    t.equal(results.filter((r) => r.status === 'rejected').length, 6)
    t.match(results[9], { status: 'rejected', reason: { code: 'ENOENT' } })
    t.equal((await nft.elements('sealane_many', 'm')).length, 54, 'a refused transaction left nothing')
    await nft.run([{ verb: 'delete-table', table: 'sealane_many' }])
  })

  t.test('a tool that was killed is started again, and one that is closed leaves no process', async (t) => {
    const nft = session()
    const children = (): number[] =>
      spawnSync('pgrep', ['-x', '-P', String(process.pid), 'nft'], { encoding: 'utf8' })
        .stdout.split('\n')
        .filter((line) => line !== '')
        .map(Number)
    const others = new Set(children())
    const mine = (): number[] => children().filter((pid) => !others.has(pid))
    await nft.run([{ verb: 'add-table', table: 'sealane_killed' }])
    t.equal(mine().length, 1)
    process.kill(mine()[0] ?? 0, 'SIGKILL')
    await nft.run([{ verb: 'add-chain', table: 'sealane_killed', chain: 'c' }])
    t.match(await nft.listTable('sealane_killed'), 'chain c {')
    await nft.run([{ verb: 'delete-table', table: 'sealane_killed' }])
    nft.close()
    await eventually(() => mine().length === 0)
  })
})
