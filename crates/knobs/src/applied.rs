//! Settings that are restored when their holder is dropped.

use std::sync::Arc;

use netplumb_sys::netns::Namespace;

use crate::error::KnobError;
use crate::journal::Journal;
use crate::setting::Setting;

/// What was changed in a namespace. Dropped, all is as it was, the last change first. With
/// a journal, what can't be restored is in it; without, the namespace is going away anyhow.
#[derive(Debug)]
pub struct Applied {
    namespace: Namespace,
    journal: Option<Arc<Journal>>,
    changed: Vec<Changed>,
}

/// A change.
#[derive(Debug)]
struct Changed {
    number: Option<u32>,
    setting: Setting,
    before: String,
    after: Option<String>,
}

/// What came of putting something back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is as it was now.
    Back,
    /// It was as before.
    Unchanged,
    /// What it was of is gone.
    Gone,
}

/// The same, but for blanks.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

/// Put something back as it was before, unless others have changed it since.
pub(crate) fn put_back(
    namespace: &Namespace,
    setting: &Setting,
    before: &str,
    after: Option<&str>,
) -> Result<Put, KnobError> {
    let now = match setting.read(namespace) {
        Err(KnobError::Gone { .. }) => return Ok(Put::Gone),
        other => other?,
    };
    if same(&now, before) {
        return Ok(Put::Unchanged);
    }
    if after.is_some_and(|after| !same(&now, after)) {
        return Err(KnobError::Changed {
            what: setting.whose(),
            before: before.into(),
            now,
        });
    }
    setting.write(namespace, before)?;
    let back = setting.read(namespace)?;
    match same(&back, before) {
        true => Ok(Put::Back),
        false => Err(KnobError::ReadsBack {
            what: setting.whose(),
            asked: before.into(),
            found: back,
        }),
    }
}

impl Applied {
    /// Nothing changed yet.
    pub fn new(namespace: Namespace, journal: Option<Arc<Journal>>) -> Applied {
        Applied {
            namespace,
            journal,
            changed: Vec::new(),
        }
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The journal, on interfaces of the user's.
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.as_ref()
    }

    /// Set it so, and read it back; whether it was otherwise before.
    ///
    /// # Errors
    /// It can't be set, reads back as something else, or was not announced: it is as it
    /// was then.
    pub fn set(&mut self, setting: Setting, to: &str) -> Result<bool, KnobError> {
        let namespace = self.namespace.try_clone().map(Namespace::from);
        let namespace = namespace.map_err(KnobError::system("open a network namespace"))?;
        let writes = setting.clone();
        self.make(setting, to, || writes.write(&namespace, to))
    }

    /// The same, where `make` does it.
    ///
    /// # Errors
    /// As [`set`](Self::set), and those of `make`.
    pub fn make<E: From<KnobError>>(
        &mut self,
        setting: Setting,
        to: &str,
        make: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, E> {
        let before = setting.read(&self.namespace)?;
        if same(&before, to) {
            return Ok(false);
        }
        self.remember(setting.clone(), before, Some(to.into()))?;
        let found = make().and_then(|()| Ok(setting.read(&self.namespace)?));
        match found {
            Ok(found) if same(&found, to) => Ok(true),
            other => {
                self.undo_last();
                Err(match other {
                    Err(error) => error,
                    Ok(found) => KnobError::ReadsBack {
                        what: setting.whose(),
                        asked: to.into(),
                        found,
                    }
                    .into(),
                })
            }
        }
    }

    /// Have it as it is now again in the end, whatever other changes make of it.
    ///
    /// # Errors
    /// It can't be read, or not be written down.
    pub fn keep(&mut self, setting: Setting) -> Result<(), KnobError> {
        let before = setting.read(&self.namespace)?;
        self.remember(setting, before, None)
    }

    fn remember(
        &mut self,
        setting: Setting,
        before: String,
        after: Option<String>,
    ) -> Result<(), KnobError> {
        let number = match &self.journal {
            Some(journal) => Some(journal.note(&setting, &before, after.as_deref())?),
            None => None,
        };
        self.changed.push(Changed {
            number,
            setting,
            before,
            after,
        });
        Ok(())
    }

    /// Restore the last change; false if there is none.
    fn undo_last(&mut self) -> bool {
        let Some(last) = self.changed.pop() else {
            return false;
        };
        let (before, after) = (&last.before, last.after.as_deref());
        let put = put_back(&self.namespace, &last.setting, before, after);
        if let (Some(journal), Some(number)) = (&self.journal, last.number) {
            match put {
                Ok(_) => journal.done(number),
                // It is as somebody else wants it.
                Err(error @ KnobError::Changed { .. }) => {
                    journal.failed(error.to_string());
                    journal.done(number);
                }
                Err(error) => journal.failed(error.to_string()),
            }
        }
        true
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        while self.undo_last() {}
    }
}
