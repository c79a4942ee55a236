//! Modules import only from below: no crate has a cycle of imports between its modules.
//!
//! A module imports another one if a private `use` or a path in its code names an item of the other one. Re-exports are followed to the
//! module that defines the item, and are no imports themselves. A module may use items of the modules that it is in. Code that is built
//! for tests alone does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Expr, File, Item, ItemUse, Lit, Meta, MetaNameValue, UseTree, Visibility,
    punctuated::Punctuated,
    visit::{self, Visit},
};

type Name = Vec<String>;

/// The items that a module defines, and its imports.
#[derive(Default)]
struct Module {
    defines: BTreeSet<String>,
    /// Each name that a `use` brings in, with its path. A glob has the name `*`.
    uses: Vec<(String, Name)>,
    /// The paths that count as imports.
    paths: Vec<Name>,
}

fn child(module: &[String], name: &str) -> Name {
    let name = name.to_owned();
    module.iter().cloned().chain([name]).collect()
}

/// The modules of a crate by their paths.
#[derive(Default)]
struct Crate(BTreeMap<Name, Module>);

fn is_test(attributes: &[Attribute]) -> bool {
    fn needs_test(meta: &Meta) -> bool {
        let list = |list: &syn::MetaList| {
            list.parse_args_with(Punctuated::<Meta, syn::Token![,]>::parse_terminated)
                .unwrap_or_default()
        };
        match meta {
            Meta::Path(path) => path.is_ident("test"),
            Meta::List(all) if all.path.is_ident("all") => list(all).iter().any(needs_test),
            _ => false,
        }
    }
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<Meta>()
                .is_ok_and(|meta| needs_test(&meta))
    })
}

/// The value of `#[path = ".."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(MetaNameValue {
                path,
                value: Expr::Lit(value),
                ..
            }) if path.is_ident("path") => match &value.lit {
                Lit::Str(value) => Some(value.value()),
                _ => None,
            },
            _ => None,
        })
}

impl Crate {
    fn parse(root: &Path) -> Self {
        let mut this = Self::default();
        this.file(Name::new(), root, &root.with_file_name(""));
        this
    }

    /// Reads a module's file. Its modules are in `folder`.
    fn file(&mut self, name: Name, file: &Path, folder: &Path) {
        let text = fs::read_to_string(file).expect("a module has a file");
        let File { items, .. } = syn::parse_file(&text).expect("it compiles");
        self.0.insert(name.clone(), Module::default());
        self.items(&name, items, folder);
    }

    fn items(&mut self, name: &Name, items: Vec<Item>, folder: &Path) {
        for item in items {
            let attributes = match &item {
                Item::Fn(item) => &item.attrs,
                Item::Impl(item) => &item.attrs,
                Item::Mod(item) => &item.attrs,
                Item::Struct(item) => &item.attrs,
                Item::Use(item) => &item.attrs,
                _ => &Vec::new(),
            };
            if is_test(attributes) {
                continue;
            }
            match item {
                Item::Mod(module) => {
                    let child = child(name, &module.ident.to_string());
                    let elsewhere = path_attribute(&module.attrs).map(|path| folder.join(path));
                    let folder = folder.join(module.ident.to_string());
                    match module.content {
                        Some((_, items)) => {
                            self.0.insert(child.clone(), Module::default());
                            self.items(&child, items, &folder);
                        }
                        None => {
                            let nested = folder.join("mod.rs");
                            let flat = folder.with_extension("rs");
                            let file = if nested.exists() { nested } else { flat };
                            match elsewhere {
                                Some(file) => self.file(child, &file, &file.with_file_name("")),
                                None => self.file(child, &file, &folder),
                            }
                        }
                    }
                }
                item => self.0.entry(name.clone()).or_default().visit_item(&item),
            }
        }
    }

    /// The module that defines the item of this path, seen from the module `from`; `None` outside of the crate.
    fn resolve(&self, from: &Name, path: &[String], depth: usize) -> Option<Name> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Name::new(),
            "self" => from.clone(),
            "super" => from.split_last()?.1.to_vec(),
            _ => {
                rest = path;
                from.clone()
            }
        };
        while let Some((segment, left)) = rest.split_first() {
            let child = child(&at, segment);
            if segment == "super" {
                at.pop()?;
            } else if self.0.contains_key(&child) {
                at = child;
            } else {
                let module = &self.0[&at];
                if module.defines.contains(segment) {
                    return Some(at);
                }
                if depth == 0 {
                    return None;
                }
                let named = module.uses.iter().filter(|(name, _)| name == segment);
                let globs = module.uses.iter().filter(|(name, _)| name == "*");
                return named
                    .map(|(_, path)| [path, left].concat())
                    .chain(globs.map(|(_, path)| [path, rest].concat()))
                    .filter(|path| path.first() != Some(segment) || self.0.contains_key(&child))
                    .find_map(|path| self.resolve(&at, &path, depth - 1));
            }
            rest = left;
        }
        Some(at)
    }

    /// The modules that each module imports.
    fn imports(&self) -> BTreeMap<&Name, BTreeSet<Name>> {
        let imports = |(name, module): (&'_ Name, &'_ Module)| -> BTreeSet<Name> {
            let paths = module.paths.iter();
            let resolved = paths.filter_map(|path| self.resolve(name, path, 8));
            // A module's own ancestors, itself included.
            resolved.filter(|other| !name.starts_with(other)).collect()
        };
        let modules = self.0.iter();
        modules
            .map(|(name, module)| (name, imports((name, module))))
            .collect()
    }

    /// The groups of modules that import each other, directly or through others.
    fn cycles(&self) -> Vec<Vec<String>> {
        let imports = self.imports();
        let reach = |from: &Name| {
            let mut seen = BTreeSet::new();
            let mut next: Vec<&Name> = imports[from].iter().collect();
            while let Some(name) = next.pop() {
                if seen.insert(name) {
                    next.extend(&imports[name]);
                }
            }
            seen
        };
        let reached: BTreeMap<_, _> = self.0.keys().map(|name| (name, reach(name))).collect();
        let mut cycles = BTreeSet::new();
        for (name, seen) in &reached {
            if seen.contains(name) {
                let group = seen.iter().filter(|other| reached[*other].contains(name));
                cycles.insert(group.map(|name| name.join("::")).collect());
            }
        }
        cycles.into_iter().collect()
    }
}

/// Collects an item's paths.
impl Visit<'_> for Module {
    fn visit_item(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        self.defines.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        let before = self.uses.len();
        flatten(&item.tree, &mut Name::new(), &mut self.uses);
        if matches!(item.vis, Visibility::Inherited) {
            let paths = self.uses[before..].iter().map(|(_, path)| path.clone());
            self.paths.extend(paths);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|one| one.ident.to_string());
            let segments: Name = segments.collect();
            if segments.len() > 1 {
                self.paths.push(segments);
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &Visibility) {}

    fn visit_macro(&mut self, call: &syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

impl Module {
    /// The paths in a macro's tokens that begin with a keyword.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Name::new();
        for token in tokens {
            match token {
                TokenTree::Ident(name) if path.is_empty() => {
                    let name = name.to_string();
                    if matches!(name.as_str(), "crate" | "self" | "super") {
                        path.push(name);
                    }
                }
                TokenTree::Ident(name) => path.push(name.to_string()),
                TokenTree::Punct(point) if point.as_char() == ':' => {}
                other => {
                    self.paths.push(std::mem::take(&mut path));
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.paths.push(path);
        self.paths.retain(|path| path.len() > 1);
    }
}

fn flatten(tree: &UseTree, path: &mut Name, uses: &mut Vec<(String, Name)>) {
    let mut named = |name: &str, last: String| match last.as_str() {
        "self" => uses.push((path.last().cloned().unwrap_or_default(), path.clone())),
        _ => uses.push((name.to_owned(), child(path, &last))),
    };
    match tree {
        UseTree::Name(one) => named(&one.ident.to_string(), one.ident.to_string()),
        UseTree::Rename(one) => named(&one.rename.to_string(), one.ident.to_string()),
        UseTree::Glob(_) => uses.push(("*".to_owned(), path.clone())),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path, uses);
            }
        }
        UseTree::Path(rest) => {
            path.push(rest.ident.to_string());
            flatten(&rest.tree, path, uses);
            path.pop();
        }
    }
}

/// The repository's root.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace is above")
}

/// What is in a folder, in order; nothing if there is no such folder.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

/// The folders of the workspace's members.
fn members() -> Vec<PathBuf> {
    let groups = ["crates", "examples"].map(|group| entries(&root().join(group)));
    let alone = ["tests", "benches"].map(|member| root().join(member));
    groups.into_iter().flatten().chain(alone).collect()
}

/// The root files of a member's targets: the library, programs and tests that Cargo finds by their places.
fn targets(member: &Path) -> Vec<PathBuf> {
    let mut targets = ["src/lib.rs", "src/main.rs", "build.rs"]
        .map(|file| member.join(file))
        .to_vec();
    for folder in ["src/bin", "tests", "benches", "examples"] {
        targets.extend(entries(&member.join(folder)).into_iter().map(|path| {
            if path.is_dir() {
                path.join("main.rs")
            } else {
                path
            }
        }));
    }
    let is_source =
        |path: &PathBuf| path.is_file() && path.extension().is_some_and(|kind| kind == "rs");
    targets.retain(is_source);
    targets
}

#[test]
fn the_modules_of_every_target_in_the_workspace_import_only_from_below() {
    let mut found = BTreeMap::new();
    for member in members() {
        let targets = targets(&member);
        assert!(!targets.is_empty(), "{} has no target", member.display());
        for target in targets {
            let cycles = Crate::parse(&target).cycles();
            if !cycles.is_empty() {
                found.insert(target, cycles);
            }
        }
    }
    assert!(
        found.is_empty(),
        "these modules import each other: {found:#?}"
    );
}

/// The manifest names the members, and no target has a place of its own: [`targets`] finds all.
#[test]
fn every_member_and_every_target_is_where_the_tests_of_imports_look() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let listed = r#"members = ["crates/*", "examples/*", "tests", "benches"]"#;
    assert!(manifest.contains(listed), "the workspace has other members");
    for member in members() {
        let manifest = fs::read_to_string(member.join("Cargo.toml")).unwrap();
        let sections = ["[lib]", "[[bin]]", "[[test]]", "[[bench]]", "[[example]]"];
        let mut with_path = manifest.split("\n[").filter(|section| {
            let is_target = sections.iter().any(|name| section.starts_with(&name[1..]));
            is_target && section.contains("path =")
        });
        assert_eq!(with_path.next(), None, "{}", member.display());
    }
}

/// Types that mean the same in each module that defines them.
const SAME_MEANING: [&str; 15] = [
    "BuildError",
    "Config",
    "Counters",
    "Disconnect",
    "Event",
    "KeyFn",
    "Link",
    "MetricsObserver",
    "Observer",
    "Outcome",
    "Readme",
    "ResponseFuture",
    "Settings",
    "SharedLink",
    "TracingObserver",
];

#[test]
fn no_name_stands_for_two_different_types() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut modules = BTreeMap::<String, Vec<String>>::new();
    for folder in fs::read_dir(crates).unwrap() {
        let folder = folder.unwrap().path();
        for (module, Module { defines, .. }) in Crate::parse(&folder.join("src/lib.rs")).0 {
            let module = format!("{}::{}", folder.display(), module.join("::"));
            // Constants and functions have no capital letter followed by a small one.
            let is_type = |name: &&String| {
                let mut letters = name.chars();
                letters.next().is_some_and(char::is_uppercase) && letters.any(char::is_lowercase)
            };
            for name in defines.iter().filter(is_type) {
                modules
                    .entry(name.clone())
                    .or_default()
                    .push(module.clone());
            }
        }
    }
    modules.retain(|name, modules| modules.len() > 1 && !SAME_MEANING.contains(&&**name));
    assert!(modules.is_empty(), "{modules:#?}");
}

/// The files in `folder` that no module names, given the file of the module that the folder belongs to.
fn strays(folder: &Path, parent: &Path, found: &mut Vec<PathBuf>) {
    let text = fs::read_to_string(parent).unwrap_or_default();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            strays(&path, &path.with_extension("rs"), found);
        } else if path.extension().is_some_and(|kind| kind == "rs") && path != parent {
            let name = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .expect("a name");
            if !text.contains(&format!("mod {name};")) {
                found.push(path);
            }
        }
    }
}

#[test]
fn every_source_file_of_a_crate_belongs_to_a_module() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut found = Vec::new();
    for folder in fs::read_dir(crates).unwrap() {
        let folder = folder.unwrap().path().join("src");
        strays(&folder, &folder.join("lib.rs"), &mut found);
    }
    assert!(found.is_empty(), "{found:#?} are in no module");
}

/// The cycles of a crate with these files.
fn cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    Crate::parse(&folder.path().join("lib.rs")).cycles()
}

#[test]
fn a_cycle_is_found_through_re_exports_paths_and_macros() {
    let root = ("lib.rs", "mod a; mod b; pub use b::B;");
    let cycle = [["a".to_owned(), "b".to_owned()]];
    for b in [
        "use crate::a::A;",
        "fn f() -> super::a::A {}",
        "fn f() { vec![crate::a::f()] }",
    ] {
        let b = format!("pub struct B; {b}");
        let a = "use crate::B; pub struct A; pub fn f() {}";
        assert_eq!(cycles(&[root, ("a.rs", a), ("b.rs", &b)]), cycle, "{b}");
    }
}

#[test]
fn re_exports_ancestors_and_tests_are_no_imports() {
    let root = ("lib.rs", "mod a; mod b; pub struct Root; use a::A;");
    let a = "pub(crate) use crate::b::B; use crate::Root; pub struct A;";
    let b = "use crate::a::A; pub struct B; #[cfg(all(test, unix))] mod tests;";
    assert_eq!(cycles(&[root, ("a.rs", a), ("b.rs", b)]), [[""; 0]; 0]);
    let b = b
        .replace("all(test, unix)", "any(test, unix)")
        .replace("mod tests;", "use crate::c::C;");
    let root = ("lib.rs", "mod a; mod b; mod c; use a::A;");
    let files = [
        root,
        ("a.rs", "pub struct A;"),
        ("b.rs", &b),
        ("c.rs", "use crate::b::B; pub struct C;"),
    ];
    assert_eq!(cycles(&files), [["b".to_owned(), "c".to_owned()]]);
}
