import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { findUserObject, removeUserObject, writeUserObject } from '../../../../kubeapi/files/user/user-objects.ts'
import { serviceExport } from '../../../compliance/cluster-api.ts'
import { failure, messageOf } from '../../../support/failure.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { serviceYaml } from '../file-site.ts'

t.test('an object gets a file of its own, and the same file again', async (t) => {
  const folder = join(temporaryFolder(t), 'objects')
  const path = await writeUserObject(folder, serviceExport('web'))
  t.equal(path, join(folder, 'serviceexport-shop-web.yaml'))
  t.equal(
    readFileSync(path, 'utf8'),
    'apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata:\n  name: web\n  namespace: shop\n',
  )
  t.equal(await writeUserObject(folder, serviceExport('web')), path)
  t.same(readdirSync(folder), ['serviceexport-shop-web.yaml'])
  t.equal(removeUserObject(folder, 'ServiceExport', 'web', 'shop'), path)
  t.equal(existsSync(path), false)
  t.equal(removeUserObject(folder, 'ServiceExport', 'web', 'shop'), undefined)
})

t.test('an object is found wherever it stands, and shared files are left to their owner', async (t) => {
  const folder = temporaryFolder(t)
  mkdirSync(join(folder, 'shop'))
  const shared = join(folder, 'shop/all.yaml')
  const before = `${serviceYaml('web')}---\napiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: web, namespace: shop}\n`
  writeFileSync(shared, before)
  t.same(findUserObject(folder, 'ServiceExport', 'web', 'shop'), { path: shared, line: 10, alone: false })
  const removing = await failure(() => removeUserObject(folder, 'ServiceExport', 'web', 'shop'))
  t.match(removing, { name: 'UserObjectError' })
  t.equal(
    removing.message,
    `ServiceExport shop/web shares ${shared} with other objects; remove it there by hand, at line 10`,
  )
  t.equal(
    await messageOf(writeUserObject(folder, serviceExport('web'))),
    `${shared} has other content and is not overwritten; add ServiceExport shop/web to it by hand`,
  )
  t.equal(readFileSync(shared, 'utf8'), before)
})

t.test('a file in the way, or a broken one, is not overwritten', async (t) => {
  const folder = temporaryFolder(t)
  const path = join(folder, 'serviceexport-shop-web.yaml')
  writeFileSync(path, 'apiVersion: [')
  t.equal(
    await messageOf(writeUserObject(folder, serviceExport('web'))),
    `${path} has other content and is not overwritten; add ServiceExport shop/web to it by hand`,
  )
  const misnamed = await failure(
    writeUserObject(folder, { ...serviceExport('web'), metadata: { name: '../web', namespace: 'shop' } }),
  )
  t.match(misnamed, { code: 'Invalid' })
  t.equal(misnamed.message, 'ServiceExport shop/../web: metadata.name "../web": expected an RFC 1123 subdomain')
  const file = join(folder, 'file')
  writeFileSync(file, '')
  const unwritable = await failure(writeUserObject(join(file, 'x'), serviceExport('web')))
  t.match(unwritable, { name: 'UserObjectError' })
  t.equal(
    unwritable.message.replace(/\.\d+\.[0-9a-f]+\.tmp'$/, ".TMP'"),
    `cannot write ${file}/x/serviceexport-shop-web.yaml: ENOTDIR: not a directory, ` +
      `open '${file}/x/.serviceexport-shop-web.yaml.TMP'`,
  )
})
