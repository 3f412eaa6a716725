import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { missingPackages } from '../../scripts/install-system-packages.ts'
import { PROTOCOL_SOURCES, generateProtocol } from '../../scripts/generate-protocol.ts'

const skip = missingPackages('proto').length === 0 ? false : 'protoc is not installed (package protobuf-compiler)'

for (const source of PROTOCOL_SOURCES) {
  const { folder, name } = source
  t.test(`${folder}/gen is what ${name}.proto says`, { skip }, async (t) => {
    const target = t.testdir()
    generateProtocol(source, target)
    const fresh = await readFile(join(target, `${name}.ts`), 'utf8')
    const committed = await readFile(join(import.meta.dirname, '../..', folder, 'gen', `${name}.ts`), 'utf8')
    t.ok(fresh === committed, 'run "npm run proto" and commit the result')
  })
}
