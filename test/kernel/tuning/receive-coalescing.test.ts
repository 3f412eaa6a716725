import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { SysfsReceiveCoalescing } from '../../../kernel/tuning/segment-joining.ts'

function device(root: string, nanoseconds: string): string {
  mkdirSync(join(root, 'sealane-vx'), { recursive: true })
  const file = join(root, 'sealane-vx', 'gro_flush_timeout')
  writeFileSync(file, nanoseconds)
  return file
}

t.test('what nobody has set is set once', async (t) => {
  const root = t.testdir()
  const file = device(root, '0\n')
  const coalescing = new SysfsReceiveCoalescing(root)
  t.equal(await coalescing.hold('sealane-vx', 100), `echo 100000 > ${file}`)
  t.equal(readFileSync(file, 'utf8'), '100000')
  t.equal(await coalescing.hold('sealane-vx', 100), undefined, 'the second time there is nothing to do')
})

t.test("an operator's value stays, and a device that is not there is no failure", async (t) => {
  const root = t.testdir()
  const file = device(root, '20000\n')
  const coalescing = new SysfsReceiveCoalescing(root)
  t.equal(await coalescing.hold('sealane-vx', 100), undefined)
  t.equal(readFileSync(file, 'utf8'), '20000\n')
  t.equal(await coalescing.hold('sealane-vy', 100), undefined)
})
