/** nft itself reads the golden tables, in a namespace of its own, and applies each twice. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { GOLDEN } from '../support/golden.ts'
import { netnsMissing, withNetns } from '../support/netns.ts'

t.test('nft takes every golden table', { skip: netnsMissing() ?? false }, async (t) => {
  const folder = join(GOLDEN, 'gateway')
  const files = readdirSync(folder).filter((name) => name.endsWith('.nft'))
  t.ok(files.length >= 5)
  await withNetns(async (ns) => {
    // What is left of a time-out differs from one moment to the next.
    const listed = async (): Promise<string> =>
      (await ns.exec('nft', ['list', 'ruleset'])).replaceAll(/ expires \d+(m?s)?(\d+ms)?/g, '')
    for (const file of files) {
      const input = readFileSync(join(folder, file), 'utf8')
      t.match(await ns.tryExec('nft', ['--check', '-f', '-'], { input }), { code: 0, stderr: '' }, file)
      await ns.exec('nft', ['-f', '-'], { input })
      const once = await listed()
      await ns.exec('nft', ['-f', '-'], { input })
      t.equal(await listed(), once, `${file}, applied again`)
    }
  })
})
