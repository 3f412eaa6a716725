import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { missingPackages } from '../../scripts/install-system-packages.ts'
import { generateProtocol } from '../../scripts/generate-protocol.ts'

const skip = missingPackages('proto').length === 0 ? false : 'protoc is not installed (package protobuf-compiler)'

t.test('protocol/gen is what broker.proto says', { skip }, async (t) => {
  const folder = t.testdir()
  generateProtocol(folder)
  const fresh = await readFile(join(folder, 'broker.ts'), 'utf8')
  const committed = await readFile(join(import.meta.dirname, '../../protocol/gen/broker.ts'), 'utf8')
  t.ok(fresh === committed, 'run "npm run proto" and commit the result')
})
